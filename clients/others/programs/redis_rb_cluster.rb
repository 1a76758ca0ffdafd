require "redis"

urls = ["redis://127.0.0.1:7000", "redis://127.0.0.1:7001", "redis://127.0.0.1:7002"]
redis = Redis.new(cluster: urls, timeout: 0.1) # with redis-rb 5 and the gem redis-clustering: Redis::Cluster.new(nodes: urls)

%w[a b c d e f].each do |key|
  puts redis.call("RL.CHECK", key, "5/h").join(" ")
end
