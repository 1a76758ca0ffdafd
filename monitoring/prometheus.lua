-- For redis_exporter --script: every counter of INFO ratelimit, as redis_script_values{key="..."}.
-- It must not fail: an error here makes the exporter report redis_up 0.
local flat = {}
local function add(name, value)
    if tonumber(value) then
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
