<?php
require 'Predis/Autoloader.php'; // with Composer: vendor/autoload.php
Predis\Autoloader::register();

$redis = new Predis\Client(['host' => '127.0.0.1', 'port' => 6379, 'timeout' => 0.1, 'read_write_timeout' => 0.1]);

/** The HTTP status and the seconds for Retry-After. */
function check(Predis\Client $redis, string $key, string ...$rules): array
{
    try {
        $reply = $redis->executeRaw(['RL.CHECK', $key, ...$rules], $failed);
    } catch (Predis\CommunicationException $error) {
        error_log("not limited: {$error->getMessage()}");
        return [200, 0];
    }
    if ($failed) {
        throw new LogicException($reply);
    }
    [$verdict, , , $wait_ms] = $reply;
    return [[200, 429, 403][$verdict], intdiv($wait_ms + 999, 1000)];
}

[$status, $retry_after] = check($redis, 'login:42', '5/h');
echo "$status $retry_after\n";
