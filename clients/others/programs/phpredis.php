<?php
/** The HTTP status and the seconds for Retry-After. */
function check(string $key, string ...$rules): array
{
    try {
        $redis = new Redis();
        $redis->pconnect('127.0.0.1', 6379, 0.1, 'limits', 0, 0.1);
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        $reply = $redis->rawCommand('RL.CHECK', $key, ...$rules);
    } catch (RedisException $error) {
        error_log("not limited: {$error->getMessage()}");
        return [200, 0];
    }
    if ($reply === false) {
        throw new LogicException($redis->getLastError());
    }
    [$verdict, , , $wait_ms] = $reply;
    return [[200, 429, 403][$verdict], intdiv($wait_ms + 999, 1000)];
}

[$status, $retry_after] = check('login:42', '5/h');
echo "$status $retry_after\n"; // in a page: http_response_code($status); header("Retry-After: $retry_after");
