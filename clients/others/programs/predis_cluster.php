<?php
require 'Predis/Autoloader.php'; // with Composer: vendor/autoload.php
Predis\Autoloader::register();

$nodes = ['127.0.0.1:7000', '127.0.0.1:7001', '127.0.0.1:7002'];
$urls = array_map(fn ($node) => "tcp://$node?timeout=0.1&read_write_timeout=0.1", $nodes);
$redis = new Predis\Client($urls, ['cluster' => 'redis']);
// Predis refuses commands of which it does not know where the key is.
foreach (['RL.CHECK', 'RL.PEEK', 'RL.SETTLE', 'RL.RENEW', 'RL.REFUND', 'RL.RESET'] as $name) {
    $redis->getConnection()->getClusterStrategy()->setCommandHandler($name, fn ($command) => $command->getArgument(0));
}

foreach (['a', 'b', 'c', 'd', 'e', 'f'] as $key) {
    echo implode(' ', $redis->executeRaw(['RL.CHECK', $key, '5/h'])), "\n";
}
