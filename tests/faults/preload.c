/* Fails, cuts short or kills at the Nth system call of a kind that concerns files below one folder.
 *
 * Loaded by LD_PRELOAD. Nothing happens before fault_begin(). What was counted lies in memory that forked
 * processes share, so that it can be read after one was killed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { OPEN, READ, PREAD, WRITE, PWRITE, COPY, SENDFILE, FSYNC, RENAME, LINK, UNLINK, TRUNCATE, FLOCK, CHMOD, CHOWN,
            MKDIR, LOOK, KINDS };
enum action { NOTHING, FAIL, KILL, SHORT, KILL_AFTER };

struct shared { atomic_long count[KINDS]; atomic_long hits; };
static struct shared *shared;
static char root[4096];
static size_t root_length;
static int armed, older, wanted_kind, wanted_action, wanted_errno, from_then_on;
static long wanted_nth;

__attribute__((constructor)) static void prepare(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* Counts begin at zero. kind < 0: only count. */
void fault_begin(const char *folder, int kind, long nth, int action, int code, int on) {
    snprintf(root, sizeof root, "%s", folder);
    root_length = strlen(root);
    for (int i = 0; i < KINDS; i++) atomic_store(&shared->count[i], 0);
    atomic_store(&shared->hits, 0);
    wanted_kind = kind, wanted_nth = nth, wanted_action = action, wanted_errno = code, from_then_on = on;
    armed = 1;
}

/* As on a system, or a file system, that has no renameat2. */
void fault_older(int on) { older = on; }

long fault_count(int kind) { return atomic_load(&shared->count[kind]); }
long fault_hits(void) { return atomic_load(&shared->hits); }

static int below(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int fd_is_ours(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}

static int path_is_ours(int folder, const char *path) {
    if (!path) return 0;
    if (!strncmp(path, "/proc/self/fd/", 14)) return fd_is_ours(atoi(path + 14));
    if (path[0] == '/') return below(path);
    return folder != AT_FDCWD && fd_is_ours(folder);
}

/* Whether this call is the one, and what is to be done; does not come back from KILL. */
static int meet(enum kind kind) {
    long n = atomic_fetch_add(&shared->count[kind], 1);
    if ((int)kind != wanted_kind || (from_then_on ? n < wanted_nth : n != wanted_nth)) return NOTHING;
    atomic_fetch_add(&shared->hits, 1);
    if (wanted_action == KILL) kill(getpid(), SIGKILL);
    return wanted_action;
}

static int here(enum kind kind, int ours) {
    int saved = errno, action = armed && ours ? meet(kind) : NOTHING;
    errno = saved;
    if (action == FAIL) errno = wanted_errno;
    return action;
}

/* What the call gave, unless the process is to end with it done. */
static long after(int action, long result) {
    if (action == KILL_AFTER) kill(getpid(), SIGKILL);
    return result;
}

#define REAL(name) ((__typeof__(&name))real(&cache, #name))
static void *real(void **cache, const char *name) {
    if (!*cache) *cache = dlsym(RTLD_NEXT, name);
    return *cache;
}
#define CACHE static void *cache

#define ON_PATH(kind, result, name, folder, path, parameters, arguments) \
    result name parameters { \
        CACHE; \
        int action = here(kind, armed && path_is_ours(folder, path)); \
        return action == FAIL ? -1 : (result)after(action, REAL(name) arguments); \
    }
#define ON_FD(kind, result, name, fd, parameters, arguments) \
    result name parameters { \
        CACHE; \
        int action = here(kind, armed && fd_is_ours(fd)); \
        return action == FAIL ? -1 : (result)after(action, REAL(name) arguments); \
    }
#define ON_BYTES(kind, name, fd, n, parameters, arguments) \
    ssize_t name parameters { \
        CACHE; \
        int action = here(kind, armed && fd_is_ours(fd)); \
        if (action == FAIL) return -1; \
        if (action == SHORT && n > 1) n /= 2; \
        return after(action, REAL(name) arguments); \
    }
#define OPENS(name, folder, parameters, arguments) \
    int name parameters { \
        CACHE; \
        mode_t mode = 0; \
        if (flags & (O_CREAT | __O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        int action = here(OPEN, armed && path_is_ours(folder, path)); \
        return action == FAIL ? -1 : (int)after(action, REAL(name) arguments); \
    }

OPENS(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENS(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPENS(openat64, at, (int at, const char *path, int flags, ...), (at, path, flags, mode))

ON_BYTES(READ, read, fd, n, (int fd, void *to, size_t n), (fd, to, n))
ON_BYTES(PREAD, pread, fd, n, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
ON_BYTES(PREAD, pread64, fd, n, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))
ON_BYTES(WRITE, write, fd, n, (int fd, const void *from, size_t n), (fd, from, n))
ON_BYTES(PWRITE, pwrite, fd, n, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at))
ON_BYTES(PWRITE, pwrite64, fd, n, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at))
ON_BYTES(COPY, copy_file_range, out, n, (int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags),
         (in, from, out, to, n, flags))
ON_BYTES(SENDFILE, sendfile, out, n, (int out, int in, off_t *from, size_t n), (out, in, from, n))
ON_BYTES(SENDFILE, sendfile64, out, n, (int out, int in, off64_t *from, size_t n), (out, in, from, n))

ON_FD(FSYNC, int, fsync, fd, (int fd), (fd))
ON_FD(FSYNC, int, fdatasync, fd, (int fd), (fd))
ON_PATH(RENAME, int, rename, AT_FDCWD, old, (const char *old, const char *new), (old, new))
ON_PATH(RENAME, int, renameat, from, old, (int from, const char *old, int to, const char *new), (from, old, to, new))
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    CACHE;
    if (older) {
        errno = ENOSYS;
        return -1;
    }
    int action = here(RENAME, armed && path_is_ours(from, old));
    return action == FAIL ? -1 : (int)after(action, REAL(renameat2)(from, old, to, new, flags));
}
ON_PATH(LINK, int, link, AT_FDCWD, old, (const char *old, const char *new), (old, new))
ON_PATH(LINK, int, linkat, from, old, (int from, const char *old, int to, const char *new, int flags),
        (from, old, to, new, flags))
ON_PATH(UNLINK, int, unlink, AT_FDCWD, path, (const char *path), (path))
ON_PATH(UNLINK, int, unlinkat, at, path, (int at, const char *path, int flags), (at, path, flags))
ON_PATH(UNLINK, int, rmdir, AT_FDCWD, path, (const char *path), (path))
ON_FD(TRUNCATE, int, ftruncate, fd, (int fd, off_t n), (fd, n))
ON_FD(TRUNCATE, int, ftruncate64, fd, (int fd, off64_t n), (fd, n))
ON_FD(FLOCK, int, flock, fd, (int fd, int how), (fd, how))
ON_FD(CHMOD, int, fchmod, fd, (int fd, mode_t mode), (fd, mode))
ON_PATH(CHMOD, int, chmod, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_FD(CHOWN, int, fchown, fd, (int fd, uid_t user, gid_t group), (fd, user, group))
ON_PATH(CHOWN, int, chown, AT_FDCWD, path, (const char *path, uid_t user, gid_t group), (path, user, group))
ON_PATH(MKDIR, int, mkdir, AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
ON_PATH(LOOK, int, fstatat, at, path, (int at, const char *path, struct stat *found, int flags), (at, path, found, flags))
ON_PATH(LOOK, int, fstatat64, at, path, (int at, const char *path, struct stat64 *found, int flags),
        (at, path, found, flags))
ON_PATH(MKDIR, int, mkdirat, at, path, (int at, const char *path, mode_t mode), (at, path, mode))
