/* Files and directories that appear atomically. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_growth.h"
#include "src/base/io.h"
#include "src/base/io_testing.h"
#include "tests/test.h"

/* A path in the test's directory; freed by the next call. */
static const char *in_dir(fsdp_test *t, const char *name)
{
    static char *paths[4];
    static int next;
    next = (next + 1) % 4;
    fsdp_free(paths[next]);
    return paths[next] = fsdp_path_join(fsdp_test_dir(t), name);
}

/* Number of entries of the test's directory. */
static size_t count_entries(fsdp_test *t)
{
    char **names;
    size_t count = 9999;
    if (fsdp_directory_list(fsdp_test_dir(t), &names, &count) == FSDP_OK)
        fsdp_free(names);
    return count;
}

static bool holds(const char *path, const char *expected)
{
    char *text;
    size_t bytes;
    if (fsdp_file_read(path, 1000, &text, &bytes) != FSDP_OK)
        return false;
    bool same = bytes == strlen(expected) && memcmp(text, expected, bytes) == 0;
    fsdp_free(text);
    return same;
}

TEST(paths_join_and_split)
{
    static const struct {
        const char *path, *parent;
    } cases[] = {{"a/b", "a"}, {"a/b/", "a"}, {"b", "."}, {"/b", "/"}, {"/", "/"}, {"a//b", "a"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *parent = fsdp_path_parent(cases[i].path);
        ASSERT_STR(parent, cases[i].parent);
        fsdp_free(parent);
    }
    ASSERT_STR(in_dir(t, "/abs"), "/abs");
    char *joined = fsdp_path_join("a/", "b");
    ASSERT_STR(joined, "a/b");
    ASSERT_STR(fsdp_path_name(joined), "b");
    fsdp_free(joined);
}

TEST(a_directory_has_a_regular_file_of_a_name)
{
    char name[PATH_MAX];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ASSERT_OK(fsdp_file_write(in_dir(t, "there"), "x", 1));
    ASSERT_OK(fsdp_directory_make(in_dir(t, "folder")));
    ASSERT(fsdp_directory_has_file(fsdp_test_dir(t), "there"));
    ASSERT(fsdp_directory_has_file("", in_dir(t, "there")));
    ASSERT(!fsdp_directory_has_file(fsdp_test_dir(t), "folder"));
    ASSERT(!fsdp_directory_has_file(fsdp_test_dir(t), "missing"));
    ASSERT(!fsdp_directory_has_file(fsdp_test_dir(t), name));
}

TEST(a_file_is_mapped_and_read)
{
    fsdp_mapping map;
    ASSERT_ERROR(fsdp_file_map(in_dir(t, "none"), &map), FSDP_ERR_NOT_FOUND, "none: cannot open");
    ASSERT_ERROR(fsdp_file_map(fsdp_test_dir(t), &map), FSDP_ERR_IO, "directory");
    ASSERT_ERROR(fsdp_file_map("/dev/null", &map), FSDP_ERR_INVALID, "not a regular file");
    ASSERT_OK(fsdp_file_write(in_dir(t, "empty"), "", 0));
    ASSERT_OK(fsdp_file_map(in_dir(t, "empty"), &map));
    ASSERT_INT(map.bytes, 0);
    fsdp_file_unmap(&map);
    ASSERT_OK(fsdp_file_write(in_dir(t, "text"), "hello", 5));
    ASSERT_OK(fsdp_file_map(in_dir(t, "text"), &map));
    ASSERT(map.bytes == 5 && memcmp(map.data, "hello", 5) == 0);
    fsdp_file_unmap(&map);
    fsdp_file_unmap(&map);
    char *text;
    size_t bytes;
    ASSERT_ERROR(fsdp_file_read(in_dir(t, "text"), 4, &text, &bytes), FSDP_ERR_INVALID, "4 bytes");
    ASSERT_OK(fsdp_file_read(in_dir(t, "text"), 5, &text, &bytes));
    ASSERT_STR(text, "hello");
    fsdp_free(text);
    ASSERT_OK(fsdp_file_copy(in_dir(t, "text"), in_dir(t, "copy")));
    ASSERT(holds(in_dir(t, "copy"), "hello"));
    ASSERT_INT(count_entries(t), 3);
}

TEST(a_discarded_file_leaves_the_old_one)
{
    fsdp_atomic_file *file;
    ASSERT_OK(fsdp_file_write(in_dir(t, "f"), "old", 3));
    ASSERT_OK(fsdp_atomic_file_begin(in_dir(t, "f"), 100, &file));
    ASSERT_OK(fsdp_atomic_file_write_at(file, 50, "xyz", 3));
    ASSERT(holds(in_dir(t, "f"), "old"));
    fsdp_atomic_file_discard(file);
    ASSERT(holds(in_dir(t, "f"), "old"));
    ASSERT_INT(count_entries(t), 1);
    ASSERT_OK(fsdp_atomic_file_begin(in_dir(t, "f"), 6, &file));
    ASSERT_OK(fsdp_atomic_file_write_at(file, 3, "def", 3));
    ASSERT_OK(fsdp_atomic_file_write_at(file, 0, "abc", 3));
    ASSERT_OK(fsdp_atomic_file_commit(file));
    ASSERT(holds(in_dir(t, "f"), "abcdef"));
    ASSERT_INT(count_entries(t), 1);
    struct stat st;
    mode_t mask = umask(0);
    umask(mask);
    ASSERT(stat(in_dir(t, "f"), &st) == 0);
    ASSERT_INT(st.st_mode & 0777, 0666 & ~mask);
}

/* Exits with 0 if a write that the system cuts short is reported and leaves nothing behind. */
static void write_beyond_the_limit(const char *path, const char *dir)
{
    static const char data[20000];
    char **names;
    size_t count;
    struct rlimit limit = {.rlim_cur = 10000, .rlim_max = 10000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(9);
    if (fsdp_file_write(path, data, sizeof data) != FSDP_ERR_IO)
        _exit(1);
    if (!strstr(fsdp_last_error(), path) || !strstr(fsdp_last_error(), "20000 bytes"))
        _exit(2);
    fsdp_atomic_file *file;
    if (fsdp_atomic_file_begin(path, 30000, &file) != FSDP_ERR_IO ||
        !strstr(fsdp_last_error(), "30000 bytes"))
        _exit(3);
    if (fsdp_directory_list(dir, &names, &count) != FSDP_OK || count != 1)
        _exit(4);
    if (!holds(path, "old"))
        _exit(5);
    _exit(0);
}

static volatile sig_atomic_t signals_seen;

static void count_signal(int number)
{
    (void)number;
    signals_seen = signals_seen + 1;
}

/* The program that the library is in has its own handler, mask and pending signals, and gets
 * neither a signal from the library's calls nor another mask. */
TEST(a_limit_of_file_sizes_raises_no_signal)
{
    static const char data[20000];
    struct sigaction handler = {.sa_handler = count_signal}, before_handler, after_handler;
    struct rlimit before, limit;
    sigset_t mask, pending;
    signals_seen = 0;
    const int fd = open(in_dir(t, "f"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    ASSERT(fd >= 0 && getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = (struct rlimit){10000, before.rlim_max};
    sigaction(SIGXFSZ, &handler, &before_handler);
    setrlimit(RLIMIT_FSIZE, &limit);
    const ssize_t some = fsdp_growing_write(fd, data, sizeof data);
    const ssize_t none = fsdp_growing_write(fd, data, sizeof data);
    const int error = errno;
    const ssize_t at = fsdp_growing_pwrite(fd, data, 1, 10000);
    const int truncated = fsdp_growing_truncate(fd, 10001);
    const int shorter = fsdp_growing_truncate(fd, 5);
    const int reserved = fsdp_growing_posix_fallocate(fd, 0, 20000);
    const int allocated = fsdp_growing_fallocate(fd, 0, 20000);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    sigpending(&pending);
    const int raised = signals_seen;
    (void)!pwrite(fd, data, 1, 10000); /* the program's own call has its own signal */
    setrlimit(RLIMIT_FSIZE, &before);
    sigaction(SIGXFSZ, &before_handler, &after_handler);
    close(fd);
    ASSERT_INT(some, 10000);
    ASSERT_INT(none, -1);
    ASSERT_INT(error, EFBIG);
    ASSERT_INT(at, -1);
    ASSERT_INT(truncated, -1);
    ASSERT_INT(shorter, 0);
    ASSERT_INT(reserved, EFBIG);
    ASSERT_INT(allocated, -1);
    ASSERT_INT(raised, 0);
    ASSERT_INT(signals_seen, 1);
    ASSERT(after_handler.sa_handler == count_signal);
    ASSERT(!sigismember(&mask, SIGXFSZ) && !sigismember(&pending, SIGXFSZ));
}

TEST(a_write_that_is_cut_off_leaves_the_old_file)
{
    const char *path = in_dir(t, "f");
    ASSERT_OK(fsdp_file_write(path, "old", 3));
    pid_t child = fork();
    if (child == 0)
        write_beyond_the_limit(path, fsdp_test_dir(t));
    int status = -1;
    ASSERT(waitpid(child, &status, 0) == child);
    ASSERT(WIFEXITED(status));
    ASSERT_INT(WEXITSTATUS(status), 0);
}

/* /dev/full is a device: written directly, never renamed onto. */
TEST(a_full_device_is_an_error_and_stays_a_device)
{
    struct stat st;
    if (stat("/dev/full", &st) != 0)
        SKIP("no /dev/full");
    ASSERT_ERROR(fsdp_file_write("/dev/full", "abc", 3), FSDP_ERR_IO,
                 "/dev/full: writing 3 bytes failed");
    ASSERT_OK(fsdp_file_write("/dev/null", "abc", 3));
    ASSERT(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    ASSERT_ERROR(fsdp_file_write(fsdp_test_dir(t), "abc", 3), FSDP_ERR_INVALID, "is a directory");
    ASSERT_ERROR(fsdp_file_write(in_dir(t, "no/such/f"), "abc", 3), FSDP_ERR_NOT_FOUND,
                 "no/such/f");
}

TEST(free_space_is_checked)
{
    ASSERT_OK(fsdp_check_free_space(in_dir(t, "not/yet/there"), 1));
    ASSERT_ERROR(fsdp_check_free_space(in_dir(t, "x"), UINT64_MAX), FSDP_ERR_IO,
                 "18446744073709551615 bytes needed");
}

TEST(directories_are_made_listed_and_removed)
{
    ASSERT_OK(fsdp_directory_make(in_dir(t, "a/b//c/")));
    ASSERT_OK(fsdp_directory_make(in_dir(t, "a/b")));
    ASSERT(fsdp_path_is_directory(in_dir(t, "a/b/c")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "a/z"), "1", 1));
    ASSERT(fsdp_path_is_file(in_dir(t, "a/z")));
    ASSERT_ERROR(fsdp_directory_make(in_dir(t, "a/z")), FSDP_ERR_IO, "a/z: cannot make");
    char **names;
    size_t count;
    ASSERT_OK(fsdp_directory_list(in_dir(t, "a"), &names, &count));
    ASSERT_INT(count, 2);
    ASSERT_STR(names[0], "b");
    ASSERT_STR(names[1], "z");
    fsdp_free(names);
    /* A link is removed; what it points to is not. */
    ASSERT_OK(fsdp_directory_make(in_dir(t, "kept")));
    ASSERT(symlink(in_dir(t, "kept"), in_dir(t, "a/link")) == 0);
    ASSERT_OK(fsdp_tree_remove(in_dir(t, "a")));
    ASSERT_OK(fsdp_tree_remove(in_dir(t, "a")));
    ASSERT_INT(count_entries(t), 1);
}

TEST(a_directory_appears_at_commit)
{
    fsdp_atomic_directory *dir;
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "new/out/"), FSDP_EXISTING_REFUSE, &dir));
    char *inside = fsdp_path_join(fsdp_atomic_directory_path(dir), "f");
    ASSERT_OK(fsdp_file_write(inside, "1", 1));
    fsdp_free(inside);
    ASSERT(!fsdp_path_is_directory(in_dir(t, "new/out")));
    ASSERT_OK(fsdp_atomic_directory_commit(dir));
    ASSERT(holds(in_dir(t, "new/out/f"), "1"));
    ASSERT_ERROR(fsdp_atomic_directory_begin(in_dir(t, "new/out"), FSDP_EXISTING_REFUSE, &dir),
                 FSDP_ERR_INVALID, "new/out: the directory exists and is not empty");
    ASSERT_ERROR(fsdp_atomic_directory_begin(in_dir(t, "new/out/f"), FSDP_EXISTING_UPDATE, &dir),
                 FSDP_ERR_INVALID, "is not a directory");
    ASSERT_ERROR(fsdp_atomic_directory_begin("/", FSDP_EXISTING_UPDATE, &dir), FSDP_ERR_INVALID,
                 "working directory");
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "gone"), FSDP_EXISTING_REFUSE, &dir));
    fsdp_atomic_directory_discard(dir);
    ASSERT_INT(count_entries(t), 1);
}

/* As with Python's open(path, "w"), also if the target does not exist yet. */
TEST(a_file_is_written_through_a_link)
{
    char *place;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "disk")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "disk/a"), "old", 3));
    ASSERT(symlink("disk/a", in_dir(t, "link")) == 0);
    ASSERT(symlink("link", in_dir(t, "again")) == 0);
    ASSERT(symlink(in_dir(t, "disk/b"), in_dir(t, "dangling")) == 0);
    ASSERT_OK(fsdp_file_write(in_dir(t, "again"), "new", 3));
    ASSERT_OK(fsdp_file_write(in_dir(t, "dangling"), "b", 1));
    ASSERT(holds(in_dir(t, "disk/a"), "new") && holds(in_dir(t, "disk/b"), "b"));
    ASSERT_INT(count_entries(t), 4);
    ASSERT(readlink(in_dir(t, "link"), (char[2]){0}, 1) == 1);
    ASSERT(readlink(in_dir(t, "dangling"), (char[2]){0}, 1) == 1);
    ASSERT_OK(fsdp_path_follow("none/x", &place));
    ASSERT_STR(place, "none/x");
    fsdp_free(place);
    ASSERT(symlink("cycle", in_dir(t, "cycle")) == 0);
    ASSERT_ERROR(fsdp_file_write(in_dir(t, "cycle"), "x", 1), FSDP_ERR_IO, "cycle: cannot follow");
    ASSERT(unlink(in_dir(t, "cycle")) == 0);
}

/* The old directory is old/a, old/b, old/s/c; the new one brings a and n. */
static void replace(fsdp_test *t)
{
    fsdp_atomic_directory *dir;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "real/s")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "real/a"), "old a", 5));
    ASSERT_OK(fsdp_file_write(in_dir(t, "real/b"), "old b", 5));
    ASSERT_OK(fsdp_file_write(in_dir(t, "real/s/c"), "old c", 5));
    ASSERT(symlink("real", in_dir(t, "link")) == 0);
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "link"), FSDP_EXISTING_UPDATE, &dir));
    char *a = fsdp_path_join(fsdp_atomic_directory_path(dir), "a");
    char *n = fsdp_path_join(fsdp_atomic_directory_path(dir), "n");
    ASSERT_OK(fsdp_file_write(a, "new a", 5));
    ASSERT_OK(fsdp_file_write(n, "new n", 5));
    fsdp_free(a);
    fsdp_free(n);
    ASSERT_OK(fsdp_atomic_directory_commit(dir));
    ASSERT(holds(in_dir(t, "real/a"), "new a"));
    ASSERT(holds(in_dir(t, "link/n"), "new n"));
    ASSERT_INT(count_entries(t), 2);
}

TEST(a_place_is_checked_before_the_work)
{
    char parent[4096];
    snprintf(parent, sizeof parent, "%s", in_dir(t, "new"));
    ASSERT_OK(fsdp_atomic_directory_check(in_dir(t, "new/deep/model"), FSDP_EXISTING_REFUSE));
    ASSERT(!fsdp_path_is_directory(parent));
    ASSERT_OK(fsdp_directory_make(parent));
    ASSERT_OK(fsdp_atomic_directory_check(parent, FSDP_EXISTING_REFUSE));
    ASSERT_OK(fsdp_file_write(in_dir(t, "new/a"), "a", 1));
    ASSERT_ERROR(fsdp_atomic_directory_check(parent, FSDP_EXISTING_REFUSE), FSDP_ERR_INVALID,
                 "not empty");
    ASSERT_OK(fsdp_atomic_directory_check(parent, FSDP_EXISTING_UPDATE));
    ASSERT_ERROR(fsdp_atomic_directory_check(in_dir(t, "new/a"), FSDP_EXISTING_UPDATE),
                 FSDP_ERR_INVALID, "not a directory");
    ASSERT_ERROR(fsdp_atomic_directory_check(in_dir(t, "new/a/b/c"), FSDP_EXISTING_UPDATE),
                 FSDP_ERR_NOT_FOUND, "Not a directory");
    ASSERT_ERROR(fsdp_atomic_directory_check("/proc/model", FSDP_EXISTING_REFUSE),
                 FSDP_ERR_NOT_FOUND, "/proc/model");
    ASSERT_INT(count_entries(t), 1); /* "new"; nothing else is left */
}

/* The work would be lost at its end, because a mount point is not renamed. */
TEST(a_mount_point_is_not_replaced)
{
    fsdp_atomic_directory *dir;
    ASSERT_ERROR(fsdp_atomic_directory_check("/proc", FSDP_EXISTING_UPDATE), FSDP_ERR_UNSUPPORTED,
                 "/proc: a file system is mounted there");
    ASSERT_ERROR(fsdp_atomic_directory_begin("/proc/", FSDP_EXISTING_UPDATE, &dir),
                 FSDP_ERR_UNSUPPORTED, "/proc: a file system is mounted there");
}

/* A folder that contains the home directory is refused as well. */
TEST(a_home_directory_is_not_replaced)
{
    char *before = getenv("HOME") ? fsdp_strdup(getenv("HOME")) : NULL;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "all/me")));
    ASSERT(setenv("HOME", in_dir(t, "all/me/"), 1) == 0);
    fsdp_status of_home = fsdp_atomic_directory_check(in_dir(t, "all/me"), FSDP_EXISTING_UPDATE),
                of_parent = fsdp_atomic_directory_check(in_dir(t, "all"), FSDP_EXISTING_UPDATE),
                within = fsdp_atomic_directory_check(in_dir(t, "all/me/o"), FSDP_EXISTING_UPDATE);
    ASSERT(!before || setenv("HOME", before, 1) == 0);
    fsdp_free(before);
    ASSERT_INT(of_home, FSDP_ERR_INVALID);
    ASSERT_INT(of_parent, FSDP_ERR_INVALID);
    ASSERT_OK(within);
}

TEST(names_of_unfinished_folders_are_known)
{
    ASSERT(fsdp_atomic_directory_is_unfinished(
        "checkpoint-5.fsdp-tmp-123-01234567-0123456789abcdef", NULL));
    ASSERT(fsdp_atomic_directory_is_unfinished("a.b.fsdp-old-7-01234567-0123456789abcdef", NULL));
    static const char *const others[] = {
        "a.tmp-123",
        "a.old-20251122",
        "a.fsdp-tmp-",
        "a.fsdp-tmp-123",
        "a.fsdp-tmp-123-",
        "a.fsdp-tmp--01234567-0123456789abcdef",
        "a.fsdp-tmp-12b-01234567-0123456789abcdef",
        "a.fsdp-tmp-123-01234567-0123456789abcde",
        "a.fsdp-old-123-01234567-0123456789abcdef0",
        "a.fsdp-old-123-01234567-0123456789abcdeg",
        "a.fsdp-tmp-123-01234567-0123456789abcdef.pt",
        "a.fsdp-tmp-123-0123456789abcdef",
        "a.fsdp-tmp-123-0123456-0123456789abcdef",
        "fsdp-tmp-123-01234567-0123456789abcdef",
    };
    for (size_t i = 0; i < FSDP_LENGTH(others); i++)
        if (fsdp_atomic_directory_is_unfinished(others[i], NULL))
            FAIL("%s", others[i]);
}

/* The digits that identify this host in temporary names. */
static const char *own_host(void)
{
    static char digits[9];
    char *name = fsdp_atomic_directory_temporary("model");
    const char *end = name ? strrchr(name, '-') : NULL;
    if (end)
        snprintf(digits, sizeof digits, "%.8s", end - 8);
    fsdp_free(name);
    return digits;
}

static const char *other_host(void)
{
    return strcmp(own_host(), "00000001") == 0 ? "00000002" : "00000001";
}

/* The temporary directory of a killed process is removed, and that of a running one (this one) is
 * kept. An old directory whose successor never took its place is moved back. */
TEST(what_a_killed_process_left_is_swept)
{
    fsdp_atomic_directory *dir;
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    ASSERT(waitpid(dead, NULL, 0) == dead);
    char left[96], aside[96], other[96], foreign[96], model[4096];
    snprintf(left, sizeof left, "model.fsdp-tmp-%d-%s-0123456789abcdef/part", (int)dead,
             own_host());
    snprintf(aside, sizeof aside, "model.fsdp-old-%d-%s-0123456789abcdef", (int)dead, own_host());
    ASSERT_OK(fsdp_directory_make(in_dir(t, left)));
    ASSERT_OK(fsdp_directory_make(in_dir(t, aside)));
    snprintf(foreign, sizeof foreign, "model.fsdp-tmp-%d-%s-0123456789abcdef", (int)dead,
             other_host());
    ASSERT_OK(fsdp_directory_make(in_dir(t, foreign)));
    ASSERT_OK(fsdp_directory_make(in_dir(t, "model.tmp-x")));
    ASSERT_OK(fsdp_directory_make(in_dir(t, "model.old-20251122")));
    snprintf(other, sizeof other, "model.tmp-%d", (int)dead);
    ASSERT_OK(fsdp_directory_make(in_dir(t, other)));
    snprintf(model, sizeof model, "%s", in_dir(t, "model"));
    ASSERT_OK(fsdp_atomic_directory_begin(model, FSDP_EXISTING_UPDATE, &dir));
    ASSERT_INT(count_entries(t), 6); /* model, this process's own, that of another host, and entries
                                        that users named similarly */
    ASSERT(fsdp_path_is_directory(model));
    fsdp_atomic_directory_sweep(model, 0);
    ASSERT(fsdp_path_is_directory(fsdp_atomic_directory_path(dir)));
    fsdp_atomic_directory_sweep(model, (int)getpid());
    ASSERT(!fsdp_path_is_directory(fsdp_atomic_directory_path(dir)));
    ASSERT(fsdp_path_is_directory(in_dir(t, foreign)));
    bool is_local = true;
    ASSERT(fsdp_atomic_directory_is_unfinished(foreign, &is_local) && !is_local);
    ASSERT(fsdp_atomic_directory_is_unfinished(aside, &is_local) && is_local);
    fsdp_atomic_directory_discard(dir);
}

/* The same for files, also if the killed process had the pid that this one has now. */
TEST(what_a_killed_process_left_of_a_file_is_swept)
{
    fsdp_atomic_file *file;
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    ASSERT(waitpid(dead, NULL, 0) == dead);
    char left[96], own[96], running[96], other[96], folder[96], held[96], path[4096];
    snprintf(left, sizeof left, "o.pt.fsdp-tmp-%d-%s-0123456789abcdef", (int)dead, own_host());
    snprintf(own, sizeof own, "o.pt.fsdp-tmp-%d-%s-0123456789abcdef", (int)getpid(), own_host());
    snprintf(running, sizeof running, "o.pt.fsdp-tmp-%d-%s-0123456789abcdef", (int)getppid(),
             own_host());
    snprintf(other, sizeof other, "o.pt.fsdp-tmp-%d-1", (int)dead);
    snprintf(folder, sizeof folder, "o.pt.fsdp-tmp-%d-%s-0123456789abcdee", (int)dead, own_host());
    const char *const kept[] = {running, other, "o.pt.tmp-1-1", "o.pt.old-20251122", "o.pt.bak"};
    ASSERT_OK(fsdp_file_write(in_dir(t, left), "1", 1));
    ASSERT_OK(fsdp_file_write(in_dir(t, own), "1", 1));
    ASSERT_OK(fsdp_directory_make(in_dir(t, folder)));
    for (size_t i = 0; i < FSDP_LENGTH(kept); i++)
        ASSERT_OK(fsdp_file_write(in_dir(t, kept[i]), "1", 1));
    /* A lock: a process of another container, which only seems to have ended. */
    snprintf(held, sizeof held, "o.pt.fsdp-tmp-%d-%s-0123456789abcdec", (int)dead, own_host());
    int lock = open(in_dir(t, held), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ASSERT(lock >= 0 && flock(lock, LOCK_EX) == 0);
    snprintf(path, sizeof path, "%s", in_dir(t, "o.pt"));
    ASSERT_OK(fsdp_file_write(path, "new", 3));
    ASSERT(!fsdp_path_is_file(in_dir(t, left)));
    ASSERT(!fsdp_path_is_file(in_dir(t, own)));
    ASSERT(fsdp_path_is_directory(in_dir(t, folder)));
    for (size_t i = 0; i < FSDP_LENGTH(kept); i++)
        ASSERT(fsdp_path_is_file(in_dir(t, kept[i])));
    ASSERT(fsdp_path_is_file(in_dir(t, held)));
    close(lock);
    ASSERT_OK(fsdp_file_write(path, "new", 3));
    ASSERT(!fsdp_path_is_file(in_dir(t, held)));
    /* A file that a thread of this process is writing is kept: both writes succeed, and the result
     * is the one committed last. */
    ASSERT_OK(fsdp_atomic_file_begin(path, 0, &file));
    ASSERT_OK(fsdp_file_write(path, "second", 6));
    ASSERT_OK(fsdp_atomic_file_append(file, "first", 5));
    ASSERT_OK(fsdp_atomic_file_commit(file));
    ASSERT(holds(path, "first"));
}

/* A process keeps its pid until its parent waits for it, which the parent may never do. */
TEST(what_a_zombie_left_is_swept)
{
    siginfo_t info;
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    ASSERT(waitid(P_PID, (id_t)dead, &info, WEXITED | WNOWAIT) == 0);
    char left[96];
    snprintf(left, sizeof left, "model.fsdp-tmp-%d-%s-0123456789abcdef/part", (int)dead,
             own_host());
    ASSERT_OK(fsdp_directory_make(in_dir(t, left)));
    ASSERT(kill(dead, 0) == 0);
    fsdp_atomic_directory_sweep(in_dir(t, "model"), 0);
    ASSERT_INT(count_entries(t), 0);
    ASSERT(waitpid(dead, NULL, 0) == dead);
}

static bool is_part(void *context, const char *old, const char *fresh, const char *name)
{
    ++*(int *)context;
    return old && fresh &&
           (strcmp(name, "part-2") == 0 || strcmp(name, "parts") == 0 ||
            strcmp(name, "parts/1") == 0);
}

/* An empty directory replaces out/{notes, part-2, parts/{1, letter}}, which only its owner may
 * read. Parts are removed; everything else is unchanged. */
TEST(what_is_stale_goes_and_nothing_else)
{
    fsdp_atomic_directory *dir;
    struct stat st;
    int asked = 0;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "out/parts")));
    ASSERT(chmod(in_dir(t, "out"), 0700) == 0);
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/notes"), "notes", 5));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/part-2"), "2", 1));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/parts/1"), "1", 1));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/parts/letter"), "dear", 4));
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "out"), FSDP_EXISTING_UPDATE, &dir));
    fsdp_atomic_directory_drop(dir, is_part, &asked);
    ASSERT_OK(fsdp_atomic_directory_commit(dir));
    ASSERT(asked >= 5);
    ASSERT(holds(in_dir(t, "out/notes"), "notes"));
    ASSERT(holds(in_dir(t, "out/parts/letter"), "dear"));
    ASSERT(!fsdp_path_is_file(in_dir(t, "out/part-2")));
    ASSERT(!fsdp_path_is_file(in_dir(t, "out/parts/1")));
    ASSERT(stat(in_dir(t, "out"), &st) == 0);
    ASSERT_INT(st.st_mode & 0777, 0700);
    ASSERT_INT(count_entries(t), 1);
}

/* A directory with the name of a new file may contain anything. */
TEST(a_directory_does_not_give_way_to_a_file)
{
    fsdp_atomic_directory *dir;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "out/model")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/model/letter"), "dear", 4));
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "out"), FSDP_EXISTING_UPDATE, &dir));
    char *model = fsdp_path_join(fsdp_atomic_directory_path(dir), "model");
    ASSERT_OK(fsdp_file_write(model, "1", 1));
    fsdp_free(model);
    ASSERT_ERROR(fsdp_atomic_directory_commit(dir), FSDP_ERR_INVALID,
                 "out/model: a directory is there, and a file is to be written");
    ASSERT(holds(in_dir(t, "out/model/letter"), "dear"));
    ASSERT_INT(count_entries(t), 1);
}

/* A file that is kept is the same file: a program that has it open can continue to write to it. */
TEST(an_updated_directory_keeps_what_the_new_one_lacks)
{
    ASSERT_OK(fsdp_directory_make(in_dir(t, "real")));
    int fd = open(in_dir(t, "real/metrics"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT(fd >= 0);
    replace(t);
    CHECK_HERE();
    ASSERT(holds(in_dir(t, "real/b"), "old b"));
    ASSERT(holds(in_dir(t, "real/s/c"), "old c"));
    ASSERT(write(fd, "later", 5) == 5);
    close(fd);
    ASSERT(holds(in_dir(t, "real/metrics"), "later"));
}

/* Without hard links, a file is copied with its permissions: a secret remains one. */
TEST(a_file_that_is_copied_keeps_its_permissions)
{
    struct stat st;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "real")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "real/0"), "secret", 6));
    ASSERT(chmod(in_dir(t, "real/0"), 0600) == 0);
    fsdp_io_fail_at(FSDP_IO_LINK, 1, EPERM);
    replace(t);
    CHECK_HERE();
    ASSERT(holds(in_dir(t, "real/0"), "secret"));
    ASSERT(stat(in_dir(t, "real/0"), &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0600);
}

/* The file under the temporary name has the same permissions, so other users can read no data. */
TEST(a_file_that_is_replaced_keeps_its_permissions)
{
    fsdp_atomic_file *file;
    struct stat st;
    char **names;
    size_t n;
    const char *dir = in_dir(t, "private");
    char *path = fsdp_path_join(dir, "run.jsonl");
    ASSERT_OK(fsdp_directory_make(dir));
    ASSERT_OK(fsdp_file_write(path, "old", 3));
    const mode_t modes[] = {0600, 0640, 0644, 0664};
    for (size_t i = 0; i < FSDP_LENGTH(modes); i++) {
        ASSERT(chmod(path, modes[i]) == 0);
        ASSERT_OK(fsdp_atomic_file_begin(path, 0, &file));
        ASSERT_OK(fsdp_directory_list(dir, &names, &n));
        ASSERT_INT(n, 2);
        for (size_t k = 0; k < n; k++) {
            char *name = fsdp_path_join(dir, names[k]);
            ASSERT(stat(name, &st) == 0);
            ASSERT_INT(st.st_mode & 0777, modes[i]);
            fsdp_free(name);
        }
        fsdp_free(names);
        ASSERT_OK(fsdp_atomic_file_append(file, "new", 3));
        ASSERT_OK(fsdp_atomic_file_commit(file));
        ASSERT(stat(path, &st) == 0);
        ASSERT_INT(st.st_mode & 0777, modes[i]);
        ASSERT_INT(st.st_size, 3);
    }
    fsdp_free(path);
}

TEST(an_empty_directory_keeps_its_permissions)
{
    fsdp_atomic_directory *dir;
    struct stat st;
    ASSERT(mkdir(in_dir(t, "out"), 0777) == 0 && chmod(in_dir(t, "out"), 0700) == 0);
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, &dir));
    ASSERT_OK(fsdp_atomic_directory_commit(dir));
    ASSERT(stat(in_dir(t, "out"), &st) == 0);
    ASSERT_INT(st.st_mode & 07777, 0700);
}

/* The directories have been exchanged when the failure occurs. */
TEST(an_exchange_that_fails_halfway_is_undone)
{
    fsdp_atomic_directory *dir;
    ASSERT_OK(fsdp_directory_make(in_dir(t, "out")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/a"), "old a", 5));
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "out"), FSDP_EXISTING_UPDATE, &dir));
    char *a = fsdp_path_join(fsdp_atomic_directory_path(dir), "a");
    ASSERT_OK(fsdp_file_write(a, "new a", 5));
    fsdp_free(a);
    fsdp_io_fail_at(FSDP_IO_RENAME, 1, EIO);
    ASSERT_ERROR(fsdp_atomic_directory_commit(dir), FSDP_ERR_IO,
                 "cannot move the old directory away");
    ASSERT(holds(in_dir(t, "out/a"), "old a"));
    ASSERT_INT(count_entries(t), 1);
}

/* A commit that fails because the parent is no longer writable leaves the old directory. */
TEST(a_failed_commit_leaves_the_old_directory)
{
    fsdp_atomic_directory *dir;
    ASSERT_OK(fsdp_atomic_directory_begin(in_dir(t, "out"), FSDP_EXISTING_REFUSE, &dir));
    ASSERT_OK(fsdp_directory_make(in_dir(t, "out")));
    ASSERT_OK(fsdp_file_write(in_dir(t, "out/theirs"), "1", 1));
    ASSERT_ERROR(fsdp_atomic_directory_commit(dir), FSDP_ERR_INVALID, "not empty");
    ASSERT(holds(in_dir(t, "out/theirs"), "1"));
    ASSERT_INT(count_entries(t), 1);
}

/* Paths of one place are resolved to the same text, whether the place exists or not. */
TEST(paths_of_one_place_resolve_alike)
{
    static const char *const ways[][2] = {{"a", "./a/"},         {"new", "link/../new//"},
                                          {"a/new", "link/new"}, {"a/x/y", "a/./x/y"},
                                          {"a", "link"},         {".", "a/.."}};
    char dir[300], path[400];
    char *first, *second;
    snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
    snprintf(path, sizeof path, "%s/a", dir);
    ASSERT_OK(fsdp_directory_make(path));
    snprintf(path, sizeof path, "%s/link", dir);
    ASSERT_INT(symlink("a", path), 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, ways[i][0]);
        ASSERT_OK(fsdp_path_resolve(path, &first));
        snprintf(path, sizeof path, "%s/%s", dir, ways[i][1]);
        ASSERT_OK(fsdp_path_resolve(path, &second));
        ASSERT_STR(first, second);
        ASSERT(*first == '/');
        fsdp_free(first);
        fsdp_free(second);
    }
    ASSERT_OK(fsdp_path_resolve("/none.of.these/x", &first));
    ASSERT_STR(first, "/none.of.these/x");
    fsdp_free(first);
    ASSERT_OK(fsdp_path_resolve("/", &first));
    ASSERT_STR(first, "/");
    fsdp_free(first);
    snprintf(path, sizeof path, "%s/file", dir);
    ASSERT_OK(fsdp_file_write(path, "x", 1));
    snprintf(path, sizeof path, "%s/file/x", dir);
    ASSERT_ERROR(fsdp_path_resolve(path, &first), FSDP_ERR_NOT_FOUND, "cannot resolve the path");
}
