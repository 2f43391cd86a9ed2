# Draws the screen of a terminal as SVG: terminal_to_svg.pl COLUMNS TITLE <SCREEN >FILE
# SCREEN is what `tmux capture-pane -e -p` prints: lines with colours as escape sequences.
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

my ($columns, $title) = @ARGV;
utf8::decode($title);
my ($width, $height, $margin) = (8.4, 19, 14);    # of a cell, and around all

# Readable on the dark background.
my @palette = map { "#$_" } qw(
    484f58 ff7b72 56d364 e3b341 79c0ff d2a8ff 76e3ea c9d1d9
    6e7681 ffa198 7ee787 f2cc60 a5d6ff e2c5ff b3f0ff ffffff
);
my ($foreground, $background) = ('#e6edf3', '#0d1117');

my @lines = <STDIN>;
chomp @lines;
pop @lines while @lines && $lines[-1] =~ /^(\s|\e\[[\d;]*m)*$/;

my ($w, $h) = ($columns * $width + 2 * $margin, @lines * $height + 2 * $margin);
my $label = escaped($title);
print qq(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $w $h" width="$w" height="$h" role="img" ),
    qq(aria-label="$label" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">\n),
    qq(<rect width="$w" height="$h" rx="8" fill="$background"/>\n);

# How text is drawn now; a screen keeps that from line to line.
my %style = ();
my $row = 0;
for my $line (@lines) {
    my $y = $margin + $row++ * $height;
    my $column = 0;
    for my $part (split /(\e\[[\d;]*m)/, $line) {
        if ($part =~ /^\e\[([\d;]*)m$/) {
            apply(split(/;/, length $1 ? $1 : '0'));
            next;
        }
        draw($part, $column, $y);
        $column += length $part;
    }
}
print "</svg>\n";

sub apply {
    while (defined(my $code = shift)) {
        if    ($code == 0)                { %style = () }
        elsif ($code == 1)                { $style{bold} = 1 }
        elsif ($code == 2)                { $style{dim} = 1 }
        elsif ($code == 7)                { $style{reverse} = 1 }
        elsif ($code == 22)               { delete @style{qw(bold dim)} }
        elsif ($code == 27)               { delete $style{reverse} }
        elsif ($code >= 30 && $code < 38) { $style{colour} = $palette[$code - 30] }
        elsif ($code >= 90 && $code < 98) { $style{colour} = $palette[$code - 82] }
        elsif ($code == 39)               { delete $style{colour} }
    }
}

sub draw {
    my ($text, $column, $y) = @_;
    # Words apart: a font that is a little wider or narrower must not move the next column.
    while ($text =~ /(\S+(?: \S+)*)/g) {
        my ($words, $at) = ($1, $column + $-[0]);
        my ($x, $long) = ($margin + $at * $width, length($words) * $width);
        my $fill = $style{colour} // $foreground;
        if ($style{reverse}) {
            printf qq(<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>\n), $x, $y, $long, $height, $fill;
            $fill = $background;
        }
        my $more = ($style{bold} ? ' font-weight="600"' : '') . ($style{dim} ? ' opacity="0.6"' : '');
        printf qq(<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s>%s</text>\n),
            $x, $y + 14, $long, $fill, $more, escaped($words);
    }
}

sub escaped {
    my ($text) = @_;
    my %entity = ('&' => '&amp;', '<' => '&lt;', '>' => '&gt;', '"' => '&quot;');
    $text =~ s/([&<>"])/$entity{$1}/g;
    return $text;
}
