/* Clocks that a test moves, for LD_PRELOAD. The file that RATELIMIT_CLOCK names has two signed numbers of
 * microseconds: the first is added to the wall clock, the second to monotonic clocks. A step of the real
 * clock leaves monotonic clocks alone; when time passes, all move. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *moved_us;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("RATELIMIT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof *moved_us, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) moved_us = page;
}

static void move(struct timespec *now, int64_t us) {
    int64_t ns = now->tv_nsec + us % 1000000 * 1000;
    now->tv_sec += us / 1000000;
    if (ns < 0) { ns += 1000000000; now->tv_sec -= 1; }
    if (ns >= 1000000000) { ns -= 1000000000; now->tv_sec += 1; }
    now->tv_nsec = ns;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (result != 0 || !moved_us) return result;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) move(now, moved_us[0]);
    if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE) move(now, moved_us[1]);
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *seconds) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (seconds) *seconds = exact.tv_sec;
    return exact.tv_sec;
}

/* Valkey 9 reads the processor's clock if /proc/cpuinfo describes one. Without this file, it reads the kernel's. */
FILE *fopen(const char *restrict path, const char *restrict mode) {
    static FILE *(*real)(const char *, const char *);
    if (!real) real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    return strcmp(path, "/proc/cpuinfo") ? real(path, mode) : NULL;
}

/* Valkey binds a module to the C library before preloaded libraries. Without this flag, the module uses these
 * clocks, too. */
void *dlopen(const char *path, int flags) {
    static void *(*real)(const char *, int);
    if (!real) real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return real(path, flags & ~RTLD_DEEPBIND);
}
