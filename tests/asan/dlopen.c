// For LD_PRELOAD in front of AddressSanitizer's runtime: servers open modules with RTLD_DEEPBIND, which it refuses.

#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *file, int flags) {
    static void *(*next)(const char *, int);
    if (!next) {
        next = dlsym(RTLD_NEXT, "dlopen");
    }
    return next(file, flags & ~RTLD_DEEPBIND);
}
