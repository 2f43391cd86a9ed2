#!/usr/bin/perl
# A helper whose READY is what the file READY says. What the file COMPLAINTS says is printed for each
# link, which then ends. With neither of them it never says that it is ready.
use strict;
use warnings;
use bytes;

my $verb = shift // '';
exit if $verb ne 'serve';

# It is nobody's child for long.
alarm 120;
binmode STDIN;
my ($cookie) = "@ARGV" =~ /--cookie[ =](\S+)/;

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

sub content {
    my ($path) = @_;
    open my $file, '<:raw', $path or return;
    local $/;
    return scalar <$file>;
}

my ($PUBKEY, $READY, $HELLO, $PING, $PONG, $STOP) = (4, 5, 7, 10, 11, 12);

send_all("\nKEYBRIDGE 2 $cookie\n" . frame($HELLO, 0, '2 0.0.1'));
while (1) {
    my ($type, $payload) = receive();
    last if $type == $PUBKEY && $payload eq '';
}
my $ready = content('READY') // do { sleep 1 while 1 };
send_all(frame($READY, 0, $ready));
my $said = content('ANSWER') // '2.2.40';
send_all(frame($READY, 0, "answer gpg answers $said\n")) if grep { $_ eq '--ask' } @ARGV;
if (defined(my $complaints = content('COMPLAINTS'))) {
    while (length $complaints) {
        my $sent = syswrite(STDERR, $complaints) // exit;
        substr($complaints, 0, $sent) = '';
    }
    exit;
}
while (1) {
    my ($type, $payload) = receive();
    exit if $type == $STOP;
    send_all(frame($READY, 0, $ready)) if $type == $PUBKEY && $payload eq '';
    send_all(frame($PONG, 0, $payload)) if $type == $PING;
}
