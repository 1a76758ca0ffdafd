/* Floors: what the server itself costs for a command that decides, measured by commands that do little else.
 *
 * A module's command uses the server to find its key, to reply, to propagate, and to expire the key. These commands do
 * so in plain C, with as little as possible between the calls: no options, nothing saved, nothing counted but verdicts.
 *
 *     FLOOR.ADD key                       open the key, add one, reply
 *     FLOOR.ADDEX key                     FLOOR.ADD that also sets an expiry and propagates the command
 *     FLOOR.GCRA key burst count period   a bucket, its numbers as in CL.THROTTLE
 *     FLOOR.LOG key (limit seconds){4} [at-us]
 *                                         a sliding log under four rules; a past time fills a log
 *     FLOOR.ENTRIES key                   how many entries a log holds
 *
 * The first four reply five integers, as RL.CHECK does: verdict (0 allowed, 1 limited), limit, remaining, wait_ms and
 * reset_ms. INFO floor counts the verdicts.
 *
 * Simple is not always correct here: commands are propagated as they came, so replicas decide again by their own
 * clocks. Nor is it always minimal: all commands but FLOOR.ADD set the expiry at every change, and the server reads
 * each of the ten words of FLOOR.LOG. A module that moves an expiry only when it must, or takes rules in fewer words,
 * can be faster than these. None can be faster than FLOOR.ADD, which does not even notify the clients that watch the
 * key. */

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>

#include "redismodule.h"

#define RULES 4
#define SECOND_US 1000000LL

/* Small enough that nothing overflows: a bucket's interval is up to MOST seconds, its burst up to MOST intervals. */
#define MOST 1000000LL

#define TTL_MS 60000
#define SMALLEST_RING 16

static const char EXPECTED_NUMBER[] = "ERR expected a whole number, up to 1000000";
static const char EXPECTED_PAST[] = "ERR expected a time of the past, in microseconds";

/* A key's value. One type serves all commands, each of which uses its own part. */
typedef struct {
    int64_t number;    /* ADD: the sum; GCRA: when the bucket will be full again, in microseconds */
    int64_t *ring;     /* LOG: the times of its entries in microseconds, the oldest at `first` */
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t first;
    uint32_t length;
} State;

/* As large as the state of most of our rules, so that reaching it touches as much memory. */
static_assert(sizeof(State) == 32, "not the size of our own state");

typedef struct {
    int limited;
    int64_t limit, remaining, wait_us, reset_us;
} Decision;

static RedisModuleType *state_type;
static long long verdicts[2];

/* ---- the server's part */

static int64_t clock_us(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec * SECOND_US + now.tv_usec;
}

static int64_t whole_ms(int64_t us) {
    return (us + 999) / 1000;
}

/* Opens a key to change it, and creates it if it is missing. If it has another type, replies
 * the error and returns NULL. */
static State *open_state(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey **key) {
    *key = RedisModule_OpenKey(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE);
    if (RedisModule_ModuleTypeGetType(*key) == state_type) return RedisModule_ModuleTypeGetValue(*key);
    if (RedisModule_KeyType(*key) == REDISMODULE_KEYTYPE_EMPTY) {
        State *state = RedisModule_Calloc(1, sizeof *state);
        if (RedisModule_ModuleTypeSetValue(*key, state_type, state) == REDISMODULE_OK) return state;
        RedisModule_Free(state);
    }
    RedisModule_CloseKey(*key);
    RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    return NULL;
}

/* What every change needs: an expiry, propagation, and a signal to clients that watch the key. */
static void changed(RedisModuleCtx *ctx, RedisModuleString *name, RedisModuleKey *key, int64_t ttl_ms) {
    RedisModule_SetExpire(key, ttl_ms);
    RedisModule_SignalModifiedKey(ctx, name);
    RedisModule_ReplicateVerbatim(ctx);
}

static int reply(RedisModuleCtx *ctx, const Decision *decision) {
    verdicts[decision->limited]++;
    RedisModule_ReplyWithArray(ctx, 5);
    RedisModule_ReplyWithLongLong(ctx, decision->limited);
    RedisModule_ReplyWithLongLong(ctx, decision->limit);
    RedisModule_ReplyWithLongLong(ctx, decision->remaining);
    RedisModule_ReplyWithLongLong(ctx, whole_ms(decision->wait_us));
    RedisModule_ReplyWithLongLong(ctx, whole_ms(decision->reset_us));
    return REDISMODULE_OK;
}

/* Whether an argument is a number from `least` to MOST. */
static int read_number(const RedisModuleString *word, int64_t least, int64_t *number) {
    long long read;
    if (RedisModule_StringToLongLong(word, &read) != REDISMODULE_OK) return 0;
    *number = read;
    return least <= read && read <= MOST;
}

/* ---- adding one */

static Decision add_one(State *state) {
    return (Decision){.limit = MOST, .remaining = ++state->number, .reset_us = TTL_MS * 1000};
}

static int add(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    State *state = open_state(ctx, argv[1], &key);
    if (!state) return REDISMODULE_OK;
    Decision decision = add_one(state);
    RedisModule_CloseKey(key);
    return reply(ctx, &decision);
}

static int addex(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key;
    State *state = open_state(ctx, argv[1], &key);
    if (!state) return REDISMODULE_OK;
    Decision decision = add_one(state);
    changed(ctx, argv[1], key, TTL_MS);
    RedisModule_CloseKey(key);
    return reply(ctx, &decision);
}

/* ---- GCRA: a bucket is one time, at which it will be full again */

static Decision decide_gcra(State *state, int64_t burst, int64_t count, int64_t period_s, int64_t now) {
    int64_t interval = period_s * SECOND_US / count;
    int64_t full_at = state->number > now ? state->number : now;
    int64_t room = now + interval * burst - full_at; /* beyond what this call takes */
    if (room < 0) {
        return (Decision){.limited = 1, .limit = burst + 1, .wait_us = -room, .reset_us = full_at - now};
    }
    state->number = full_at + interval;
    return (Decision){.limit = burst + 1, .remaining = room / interval, .reset_us = state->number - now};
}

static int gcra(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 5) return RedisModule_WrongArity(ctx);
    int64_t burst, count, period_s;
    if (!read_number(argv[2], 0, &burst) || !read_number(argv[3], 1, &count) || !read_number(argv[4], 1, &period_s)) {
        return RedisModule_ReplyWithError(ctx, EXPECTED_NUMBER);
    }
    RedisModuleKey *key;
    State *state = open_state(ctx, argv[1], &key);
    if (!state) return REDISMODULE_OK;
    Decision decision = decide_gcra(state, burst, count, period_s, clock_us());
    if (!decision.limited) changed(ctx, argv[1], key, whole_ms(decision.reset_us));
    RedisModule_CloseKey(key);
    return reply(ctx, &decision);
}

/* ---- the sliding log: a ring of times */

typedef struct {
    int64_t limit, window_us;
} Rule;

static int64_t entry(const State *state, uint32_t index) {
    return state->ring[(state->first + index) & (state->capacity - 1)];
}

/* How many entries are at or before a time. Starts from a guess for evenly spaced entries, which the measured logs
 * have. From there it reads fewer places of the ring than bisection would. */
static uint32_t count_until(const State *state, int64_t time_us) {
    if (!state->length || time_us < entry(state, 0)) return 0;
    const uint32_t last = state->length - 1;
    const int64_t oldest = entry(state, 0), newest = entry(state, last);
    if (time_us >= newest) return state->length;
    uint32_t count = (uint32_t)((time_us - oldest) * last / (newest - oldest));
    while (count > 0 && entry(state, count - 1) > time_us) count--;
    while (entry(state, count) <= time_us) count++;
    return count;
}

static void grow(State *state) {
    uint32_t capacity = state->capacity ? 2 * state->capacity : SMALLEST_RING;
    int64_t *ring = RedisModule_Alloc(capacity * sizeof *ring);
    for (uint32_t index = 0; index < state->length; index++) ring[index] = entry(state, index);
    RedisModule_Free(state->ring);
    state->ring = ring;
    state->capacity = capacity;
    state->first = 0;
}

/* One rule's answer: how many more its window has room for, or how long until it has room for one. */
static Decision ask(const State *state, const Rule *rule, int64_t now) {
    int64_t used = state->length - count_until(state, now - rule->window_us);
    if (used < rule->limit) {
        return (Decision){.limit = rule->limit, .remaining = rule->limit - used - 1, .reset_us = rule->window_us};
    }
    return (Decision){
        .limited = 1,
        .limit = rule->limit,
        .wait_us = entry(state, (uint32_t)(state->length - rule->limit)) + rule->window_us - now,
        .reset_us = entry(state, state->length - 1) + rule->window_us - now,
    };
}

/* Which rule decides: the one with the longest wait, else the one with the least remaining. */
static int outweighs(const Decision *one, const Decision *other) {
    if (one->wait_us != other->wait_us) return one->wait_us > other->wait_us;
    return one->remaining < other->remaining;
}

static int64_t longest_window(const Rule *rules) {
    int64_t longest = 0;
    for (int index = 0; index < RULES; index++) {
        if (rules[index].window_us > longest) longest = rules[index].window_us;
    }
    return longest;
}

/* Drops what has left the longest window, so the ring never has more entries than that window's limit. */
static void append(State *state, int64_t longest_us, int64_t now) {
    while (state->length && entry(state, 0) <= now - longest_us) {
        state->first++;
        state->length--;
    }
    if (state->length == state->capacity) grow(state);
    state->ring[(state->first + state->length++) & (state->capacity - 1)] = now;
}

static Decision decide_log(State *state, const Rule *rules, int64_t longest_us, int64_t now) {
    /* If the clock steps back, time stands still here, so that entries stay in order. */
    if (state->length && entry(state, state->length - 1) > now) now = entry(state, state->length - 1);
    Decision decision = ask(state, &rules[0], now);
    for (int index = 1; index < RULES; index++) {
        Decision other = ask(state, &rules[index], now);
        if (outweighs(&other, &decision)) decision = other;
    }
    if (!decision.limited) append(state, longest_us, now);
    return decision;
}

static int log_four(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    const int bare = 2 + 2 * RULES;
    if (argc != bare && argc != bare + 1) return RedisModule_WrongArity(ctx);
    Rule rules[RULES];
    for (int index = 0; index < RULES; index++) {
        RedisModuleString **words = &argv[2 + 2 * index];
        int64_t seconds;
        if (!read_number(words[0], 1, &rules[index].limit) || !read_number(words[1], 1, &seconds)) {
            return RedisModule_ReplyWithError(ctx, EXPECTED_NUMBER);
        }
        rules[index].window_us = seconds * SECOND_US;
    }
    long long now = clock_us();
    if (argc > bare) {
        long long at;
        if (RedisModule_StringToLongLong(argv[bare], &at) != REDISMODULE_OK || at < 0 || at > now) {
            return RedisModule_ReplyWithError(ctx, EXPECTED_PAST);
        }
        now = at;
    }
    RedisModuleKey *key;
    State *state = open_state(ctx, argv[1], &key);
    if (!state) return REDISMODULE_OK;
    int64_t longest_us = longest_window(rules);
    Decision decision = decide_log(state, rules, longest_us, now);
    if (!decision.limited) changed(ctx, argv[1], key, whole_ms(longest_us));
    RedisModule_CloseKey(key);
    return reply(ctx, &decision);
}

static int entries(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (argc != 2) return RedisModule_WrongArity(ctx);
    RedisModuleKey *key = RedisModule_OpenKey(ctx, argv[1], REDISMODULE_READ);
    const State *state = NULL;
    if (RedisModule_ModuleTypeGetType(key) == state_type) {
        state = RedisModule_ModuleTypeGetValue(key);
    } else if (RedisModule_KeyType(key) != REDISMODULE_KEYTYPE_EMPTY) {
        RedisModule_CloseKey(key);
        return RedisModule_ReplyWithError(ctx, REDISMODULE_ERRORMSG_WRONGTYPE);
    }
    RedisModule_ReplyWithLongLong(ctx, state ? state->length : 0);
    RedisModule_CloseKey(key);
    return REDISMODULE_OK;
}

/* ---- the type: a copy is complete, but nothing is saved, so a loaded key has an empty state */

static void *load(RedisModuleIO *rdb, int encoding) {
    (void)rdb, (void)encoding;
    return RedisModule_Calloc(1, sizeof(State));
}

static void save(RedisModuleIO *rdb, void *value) {
    (void)rdb, (void)value;
}

static void rewrite(RedisModuleIO *aof, RedisModuleString *name, void *value) {
    (void)aof, (void)name, (void)value;
}

static void release(void *value) {
    State *state = value;
    RedisModule_Free(state->ring);
    RedisModule_Free(state);
}

static void *copy(RedisModuleString *from, RedisModuleString *to, const void *value) {
    (void)from, (void)to;
    State *state = RedisModule_Alloc(sizeof *state);
    memcpy(state, value, sizeof *state);
    if (state->capacity) {
        const size_t size = state->capacity * sizeof *state->ring;
        int64_t *ring = RedisModule_Alloc(size);
        state->ring = memcpy(ring, state->ring, size);
    }
    return state;
}

static size_t memory(const void *value) {
    const State *state = value;
    return sizeof *state + state->capacity * sizeof *state->ring;
}

/* ---- loading */

static void info(RedisModuleInfoCtx *ctx, int for_crash_report) {
    (void)for_crash_report;
    RedisModule_InfoAddSection(ctx, "");
    RedisModule_InfoAddFieldLongLong(ctx, "allowed", verdicts[0]);
    RedisModule_InfoAddFieldLongLong(ctx, "limited", verdicts[1]);
}

static const struct {
    const char *name;
    RedisModuleCmdFunc handler;
    const char *flags;
} COMMANDS[] = {
    {"floor.add", add, "write deny-oom fast"},
    {"floor.addex", addex, "write deny-oom fast"},
    {"floor.gcra", gcra, "write deny-oom fast"},
    {"floor.log", log_four, "write deny-oom fast"},
    {"floor.entries", entries, "readonly fast"},
};

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (RedisModule_Init(ctx, "floor", 1, REDISMODULE_APIVER_1) != REDISMODULE_OK) return REDISMODULE_ERR;
    /* Without this option, a key opened for a change counts as changed when it is closed, even after a denial. */
    RedisModule_SetModuleOptions(ctx, REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED);
    RedisModuleTypeMethods methods = {
        .version = REDISMODULE_TYPE_METHOD_VERSION,
        .rdb_load = load,
        .rdb_save = save,
        .aof_rewrite = rewrite,
        .mem_usage = memory,
        .free = release,
        .copy = copy,
    };
    state_type = RedisModule_CreateDataType(ctx, "floorbnch", 0, &methods);
    if (!state_type || RedisModule_RegisterInfoFunc(ctx, info) != REDISMODULE_OK) return REDISMODULE_ERR;
    for (size_t index = 0; index < sizeof COMMANDS / sizeof *COMMANDS; index++) {
        const char *name = COMMANDS[index].name, *flags = COMMANDS[index].flags;
        int made = RedisModule_CreateCommand(ctx, name, COMMANDS[index].handler, flags, 1, 1, 1);
        if (made != REDISMODULE_OK) return REDISMODULE_ERR;
    }
    return REDISMODULE_OK;
}
