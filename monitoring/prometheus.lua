-- For redis_exporter --script: every number of INFO ratelimit, as redis_script_values{key="..."}.
-- It must not fail: an error here makes the exporter report redis_up 0.
local flat = {}
-- Only decimal numbers: a commit such as 12e45678 is a number too, by its look.
local function add(name, value)
    if value:match('^%-?%d+$') and name ~= 'ratelimit_commit' then
        flat[#flat + 1] = name
        flat[#flat + 1] = value
    end
end
local info = redis.pcall('INFO', 'ratelimit')
if type(info) == 'string' then
    for name, value in info:gmatch('([^\r\n:]+):([^\r\n]*)') do
        add(name, value)
        for field, number in value:gmatch('([%w_]+)=([^,]*)') do
            add(name .. '_' .. field, number)
        end
    end
end
return flat
