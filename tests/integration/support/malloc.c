// An allocator in front of glibc's, for LD_PRELOAD. A test makes it fail or misalign. It has all functions of jemalloc
// that Debian's servers use: if one allocator frees or measures a block of the other, the server crashes.
//
//   MALLOC_COUNTDOWN=file   the file begins with a 64 bit integer that a test writes: each allocation counts it down, and
//                           the one that makes it 0 fails. 0 and below: all succeed.
//   MALLOC_OFFSET=8         each address is 8 bytes after a multiple of 16, as in a server without malloc_usable_size. From
//                           this, free knows that glibc's block begins 8 bytes earlier.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

static _Atomic int64_t *countdown;
static size_t offset;

__attribute__((constructor)) static void start(void) {
    const char *file = getenv("MALLOC_COUNTDOWN"), *bytes = getenv("MALLOC_OFFSET");
    if (bytes) {
        offset = strtoul(bytes, NULL, 10);
    }
    if (file) {
        int descriptor = open(file, O_RDWR);
        void *page = mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (page == MAP_FAILED) {
            abort();
        }
        close(descriptor);
        countdown = page;
    }
}

static int fails(void) {
    if (!countdown || *countdown <= 0 || --*countdown != 0) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

static size_t offset_of(void *block) {
    return (uintptr_t)block % 16;
}

static void *shifted(void *start) {
    return start ? (char *)start + offset : NULL;
}

void *malloc(size_t size) {
    return fails() ? NULL : shifted(__libc_malloc(size + offset));
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || fails()) {
        return NULL;
    }
    return shifted(__libc_calloc(1, bytes + offset));
}

void free(void *block) {
    if (block) {
        __libc_free((char *)block - offset_of(block));
    }
}

void *realloc(void *block, size_t size) {
    if (!block) {
        return malloc(size);
    }
    if (size == 0) {
        free(block);
        return NULL;
    }
    size_t before = offset_of(block);
    if (fails()) {
        return NULL;
    }
    void *start = __libc_realloc((char *)block - before, size + before);
    return start ? (char *)start + before : NULL;
}

// A block of memalign begins at a multiple of 16, so free takes it as it is.
void *memalign(size_t alignment, size_t size) {
    return fails() ? NULL : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

// Only jemalloc has this function.
void sdallocx(void *block, size_t size, int flags) {
    (void)size, (void)flags;
    free(block);
}

size_t malloc_usable_size(void *block) {
    static size_t (*of_glibc)(void *);
    if (!of_glibc) {
        // RTLD_NEXT may find jemalloc's.
        of_glibc = dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "malloc_usable_size");
    }
    return block ? of_glibc((char *)block - offset_of(block)) - offset_of(block) : 0;
}
