# A helper that sets everything up as it should, and then does what it should not: FAULT, once the
# file TRIGGER is there.
sub silence { sleep 1 while 1 }

greet();
my $home = $ENV{GNUPGHOME};
report('{"ready":{"user":{"name":"nobody","uid":65534},"gnupg":"2.2.40","home":"' . $home
    . '","sockets":{"gpg":"' . $home . '/S","ssh":null},"keys":null,"warnings":[]}}');
until (-e 'TRIGGER') {
    my $waiting = '';
    vec($waiting, fileno(STDIN), 1) = 1;
    next unless select($waiting, undef, undef, 0.02);
    my ($type, $payload) = receive();
    send_all(frame($PONG, 0, $payload)) if $type == $PING;
}

my %faults = (
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
