#!/usr/bin/perl
# A helper that sets everything up as it should, and then does what it should not: FAULT, once the
# file TRIGGER is there.
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

sub silence { sleep 1 while 1 }

my ($DATA, $OPEN, $PUBKEY, $READY, $HELLO, $PING, $PONG) = (1, 2, 4, 5, 7, 10, 11);

send_all("\nKEYBRIDGE 2 $cookie\n" . frame($HELLO, 0, '2 0.0.1'));
while (1) {
    my ($type, $payload) = receive();
    last if $type == $PUBKEY && $payload eq '';
}
my $home = $ENV{GNUPGHOME};
send_all(frame($READY, 0, "user nobody\ngnupg 2.2.40\nhome $home\ngpg-socket $home/S\nkeys 0 0 0 0\n"));
send_all(frame($READY, 0, "answer gpg answers 2.2.40\n")) if grep { $_ eq '--ask' } @ARGV;
until (-e 'TRIGGER') {
    my $waiting = '';
    vec($waiting, fileno(STDIN), 1) = 1;
    next unless select($waiting, undef, undef, 0.02);
    my ($type, $payload) = receive();
    send_all(frame($PONG, 0, $payload)) if $type == $PING;
}

my %faults = (
    'silence' => \&silence,
    'half a frame' => sub { send_all(substr(frame($PING, 0, 'x' x 8), 0, 12)); silence() },
    'data without credit' => sub {
        send_all(frame($OPEN, 1, 'gpg-agent'));
        my $data = frame($DATA, 1, 'NOP ' . 'x' x 30_000);
        send_all($data) while 1;
    },
    'pings' => sub {
        my $pings = frame($PING, 0, 'x' x 8) x 1000;
        send_all($pings) while 1;
    },
    'complaints' => sub {
        my $complaints = ('WARN ' . 'x' x 200 . "\n") x 300;
        syswrite STDERR, $complaints or exit while 1;
    },
    'a lane that is off' => sub {
        send_all(frame($OPEN, 1, 'ssh-agent') . frame($DATA, 1, "\0\0\0\1\x0b"));
        silence();
    },
    'ten thousand streams' => sub {
        send_all(join '', map { frame($OPEN, $_, 'gpg-agent') } 1 .. 10_000);
        silence();
    },
);
$faults{'FAULT'}->();
