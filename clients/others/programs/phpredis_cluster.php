<?php
$redis = new RedisCluster(null, ['127.0.0.1:7000', '127.0.0.1:7001', '127.0.0.1:7002'], 0.1, 0.1);

foreach (['a', 'b', 'c', 'd', 'e', 'f'] as $key) {
    $reply = $redis->rawCommand($key, 'RL.CHECK', $key, '5/h'); // the first argument chooses the node
    echo implode(' ', $reply), "\n";
}
