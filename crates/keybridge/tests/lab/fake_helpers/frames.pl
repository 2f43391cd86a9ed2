#!/usr/bin/perl
# What every fake helper begins with: it is called as the real one is, and says and reads frames.
use strict;
use warnings;
use bytes;

my $verb = shift // '';
exit if $verb ne 'serve';

# It is nobody's child for long.
alarm 120;
$SIG{PIPE} = 'DEFAULT';
binmode STDIN;
my ($cookie) = "@ARGV" =~ /--cookie[ =](\S+)/;
my ($DATA, $OPEN, $PUBKEY, $READY, $HELLO, $PING, $PONG, $STOP) = (1, 2, 4, 5, 7, 10, 11, 12);

sub send_all {
    my ($bytes) = @_;
    while (length $bytes) {
        my $sent = syswrite(STDOUT, $bytes) // exit;
        substr($bytes, 0, $sent) = '';
    }
}

sub frame {
    my ($type, $stream, $payload) = @_;
    return pack('NCN', 5 + length $payload, $type, $stream) . $payload;
}

sub receive {
    my $header = take(9) or exit;
    my ($length, $type, $stream) = unpack 'NCN', $header;
    return ($type, $length > 5 ? take($length - 5) : '');
}

sub take {
    my ($size) = @_;
    my $bytes = '';
    while (length $bytes < $size) {
        sysread(STDIN, $bytes, $size - length $bytes, length $bytes) or return;
    }
    return $bytes;
}

# Greets the host, and takes its keys.
sub greet {
    send_all("\nKEYBRIDGE 2 $cookie\n" . frame($HELLO, 0, '2 0.0.1'));
    while (1) {
        my ($type, $payload) = receive();
        last if $type == $PUBKEY && $payload eq '';
    }
}

# Says that it is ready, and what gpg has answered if the host wants to know.
sub report {
    my ($ready, $answers) = @_;
    $answers //= '{"answers":[{"lane":"gpg","outcome":{"Ok":"2.2.40"}}]}';
    send_all(frame($READY, 0, $ready));
    send_all(frame($READY, 0, $answers)) if grep { $_ eq '--ask' } @ARGV;
}

