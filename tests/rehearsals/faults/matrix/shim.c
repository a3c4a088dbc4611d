/* Counts the calls of a process that change a file, and kills it before one of them, or fails all writes from one on.
 *
 * Loaded by LD_PRELOAD. fault_arm(mode, at) starts: mode 0 only counts, 1 kills before call number "at", 2 is a full disk
 * from write number "at" on, 3 at that write only. fault_count() returns the number of calls, or of writes in modes 2 and 3.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int armed, mode;
static long at, count;

void fault_arm(int new_mode, long new_at) { mode = new_mode; at = new_at; count = 0; armed = 1; }
long fault_count(void) { armed = 0; return count; }

/* Return whether a call has to fail; "grows" if it needs room on the disk. */
static int fails(int grows) {
    if (!armed || (mode > 1 && !grows)) return 0;
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (mode == 1 && number == at) kill(getpid(), SIGKILL);
    if (mode < 2 || number < at || (mode == 3 && number > at)) return 0;
    errno = ENOSPC;
    return 1;
}

/* Return whether a descriptor is a file; the output of the command is a log, which has room. */
static int regular(int file) {
    struct stat state;
    return armed && file > 2 && !fstat(file, &state) && S_ISREG(state.st_mode);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define CALL(type, name, parameters, arguments, condition, grows, failed) \
    type name parameters { REAL(name); if ((condition) && fails(grows)) return failed; return real arguments; }

CALL(ssize_t, write, (int f, const void *b, size_t n), (f, b, n), regular(f), 1, -1)
CALL(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o), regular(f), 1, -1)
CALL(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o), regular(f), 1, -1)
CALL(ssize_t, writev, (int f, const struct iovec *v, int n), (f, v, n), regular(f), 1, -1)
CALL(ssize_t, sendfile, (int f, int s, off_t *o, size_t n), (f, s, o, n), regular(f), 1, -1)
CALL(ssize_t, sendfile64, (int f, int s, off64_t *o, size_t n), (f, s, o, n), regular(f), 1, -1)
CALL(size_t, fwrite, (const void *b, size_t s, size_t n, FILE *f), (b, s, n, f), regular(fileno(f)), 1, 0)
CALL(int, ftruncate, (int f, off_t n), (f, n), 1, 0, -1)
CALL(int, ftruncate64, (int f, off64_t n), (f, n), 1, 0, -1)
CALL(int, mkdir, (const char *p, mode_t m), (p, m), 1, 1, -1)
CALL(int, mkdirat, (int d, const char *p, mode_t m), (d, p, m), 1, 1, -1)
CALL(int, link, (const char *a, const char *b), (a, b), 1, 1, -1)
CALL(int, linkat, (int d, const char *a, int e, const char *b, int g), (d, a, e, b, g), 1, 1, -1)
CALL(int, symlink, (const char *a, const char *b), (a, b), 1, 1, -1)
CALL(int, rename, (const char *a, const char *b), (a, b), 1, 0, -1)
CALL(int, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b), 1, 0, -1)
CALL(int, unlink, (const char *p), (p), 1, 0, -1)
CALL(int, unlinkat, (int d, const char *p, int g), (d, p, g), 1, 0, -1)
CALL(int, rmdir, (const char *p), (p), 1, 0, -1)

/* Opening changes a file if it creates or cuts it; an existing file needs no room. */
#define OPEN(name, parameters, arguments, missing) \
    int name parameters { \
        REAL(name); \
        va_list rest; va_start(rest, flags); mode_t bits = va_arg(rest, mode_t); va_end(rest); \
        int created = armed && (flags & O_CREAT) && (missing); \
        if ((created || (flags & O_TRUNC)) && fails(created)) return -1; \
        return real arguments; \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, bits), access(path, F_OK))
OPEN(open64, (const char *path, int flags, ...), (path, flags, bits), access(path, F_OK))
OPEN(openat, (int d, const char *path, int flags, ...), (d, path, flags, bits), faccessat(d, path, F_OK, 0))
OPEN(openat64, (int d, const char *path, int flags, ...), (d, path, flags, bits), faccessat(d, path, F_OK, 0))
