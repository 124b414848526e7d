/* Paths and directories. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"
#include "src/base/program.h"

enum {
    WALK_OPEN_FOLDERS = 16, /* maximum number of descriptors that nftw keeps open at once */
    MAX_LINKS = 40          /* as in Linux */
};

char *fsdp_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    if (n == 0 || name[0] == '/')
        return fsdp_strdup(name);
    return fsdp_strdup_printf("%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

size_t fsdp_path_length(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

char *fsdp_path_stripped(const char *path)
{
    return fsdp_strndup(path, fsdp_path_length(path));
}

char *fsdp_path_parent(const char *path)
{
    size_t n = fsdp_path_length(path);
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? fsdp_strndup(path, n) : fsdp_strdup(".");
}

const char *fsdp_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Return the path to which the link `path` points. If `target` is relative, it begins at the folder
 * of the link. The caller owns the path. */
static char *path_of_target(const char *path, const char *target)
{
    char *parent = fsdp_path_parent(path);
    char *joined = parent ? fsdp_path_join(parent, target) : NULL;
    fsdp_free(parent);
    return joined;
}

fsdp_status fsdp_path_follow(const char *path, char **place)
{
    char target[PATH_MAX];
    char *at = fsdp_strdup(path);
    for (int links = 0; at && links <= MAX_LINKS; links++) {
        const ssize_t n = readlink(at, target, sizeof target - 1);
        if (n < 0) { /* `at` is not a link, or nothing exists there */
            *place = at;
            return FSDP_OK;
        }
        target[n] = 0;
        char *next = path_of_target(at, target);
        fsdp_free(at);
        at = next;
    }
    if (!at)
        return FSDP_ERR_NOMEM;
    fsdp_free(at);
    errno = ELOOP;
    return fsdp_io_error(path, "cannot follow the symbolic link");
}

fsdp_status fsdp_path_resolve(const char *path, char **resolved)
{
    size_t n = fsdp_path_length(path); /* the first n bytes of `path` are looked up */
    char *start = fsdp_strndup(path, n), *real = NULL;
    while (start && !(real = realpath(start, NULL)) && errno == ENOENT && n > 0) {
        while (n > 0 && path[n - 1] != '/')
            n--;
        while (n > 1 && path[n - 1] == '/')
            n--;
        fsdp_free(start);
        start = n ? fsdp_strndup(path, n) : fsdp_strdup(".");
    }
    if (!start)
        return fsdp_error_nomem();
    fsdp_free(start);
    if (!real)
        return fsdp_io_error(path, "cannot resolve the path");
    const char *rest = path + n;
    rest += strspn(rest, "/");
    *resolved = fsdp_strdup_printf("%s%s%.*s", real, *rest && strcmp(real, "/") != 0 ? "/" : "",
                                   (int)fsdp_path_length(rest), rest);
    free(real); /* realpath() allocated it, not fsdp_calloc() */
    return *resolved ? FSDP_OK : FSDP_ERR_NOMEM;
}

bool fsdp_path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool fsdp_directory_has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s%s%s", dir, *dir ? "/" : "", name);
    return n >= 0 && (size_t)n < sizeof path && fsdp_path_is_file(path);
}

bool fsdp_path_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool fsdp_is_program(const char *path)
{
    return fsdp_path_is_file(path) && access(path, X_OK) == 0;
}

char *fsdp_program_find(const char *name)
{
    const char *path = getenv("PATH");
    for (path = path ? path : "/usr/bin:/bin"; *path; path += *path == ':') {
        const size_t length = strcspn(path, ":");
        char *candidate =
            fsdp_strdup_printf("%.*s%s%s", (int)length, path, length ? "/" : "./", name);
        if (!candidate || fsdp_is_program(candidate))
            return candidate;
        fsdp_free(candidate);
        path += length;
    }
    return NULL;
}

bool fsdp_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

fsdp_status fsdp_path_check(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT || errno == ENOTDIR ? FSDP_OK : fsdp_io_error(path, "cannot open");
    if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%s: neither a regular file nor a directory", path);
}

bool fsdp_path_is_sparse(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           (int64_t)st.st_blocks * 512 < st.st_size / 2;
}

static fsdp_status make_one(const char *path)
{
    if (mkdir(path, 0777) == 0 || fsdp_path_is_directory(path))
        return FSDP_OK;
    return fsdp_io_error(path, "cannot make the directory");
}

fsdp_status fsdp_directory_make(const char *path)
{
    char *prefix = fsdp_strdup(path);
    if (!prefix)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (char *c = prefix + 1; *prefix && *c && status == FSDP_OK; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        status = make_one(prefix);
        *c = '/';
    }
    if (status == FSDP_OK)
        status = make_one(prefix);
    fsdp_free(prefix);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Append the names in a directory to *text. A NUL follows each name. */
static fsdp_status read_names(DIR *dir, const char *path, char **text, size_t *bytes, size_t *count)
{
    size_t cap = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? fsdp_io_error(path, "cannot list the directory") : FSDP_OK;
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        size_t n = strlen(name) + 1;
        if (!FSDP_GROW(*text, cap, *bytes + n))
            return FSDP_ERR_NOMEM;
        memcpy(*text + *bytes, name, n);
        *bytes += n;
        ++*count;
    }
}

fsdp_status fsdp_directory_list(const char *path, char ***names, size_t *count)
{
    DIR *dir = opendir(path);
    if (!dir)
        return fsdp_io_error(path, "cannot list the directory");
    char *text = NULL;
    size_t bytes = 0, n = 0;
    fsdp_status status = read_names(dir, path, &text, &bytes, &n);
    closedir(dir);
    char **list = status == FSDP_OK ? fsdp_calloc(n * sizeof *list + bytes, 1) : NULL;
    if (status == FSDP_OK && !list)
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        char *at = (char *)(list + n);
        if (bytes)
            memcpy(at, text, bytes);
        for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
            list[i] = at;
        qsort(list, n, sizeof *list, compare_names);
        *names = list;
        *count = n;
    }
    fsdp_free(text);
    return status;
}

static int remove_visited(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path) == 0 || errno == ENOENT ? 0 : (int)fsdp_io_error(path, "cannot remove");
}

fsdp_status fsdp_tree_remove(const char *path)
{
    int result = nftw(path, remove_visited, WALK_OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    if (result == -1)
        return errno == ENOENT ? FSDP_OK : fsdp_io_error(path, "cannot remove");
    return (fsdp_status)result;
}

fsdp_status fsdp_check_free_space(const char *path, uint64_t bytes)
{
    char *at = fsdp_strdup(path);
    if (!at)
        return FSDP_ERR_NOMEM;
    struct statvfs fs;
    int result;
    while ((result = statvfs(at, &fs)) != 0 && errno == ENOENT) {
        char *parent = fsdp_path_parent(at);
        bool top = !parent || strcmp(parent, at) == 0;
        fsdp_free(at);
        at = parent;
        if (top)
            break;
    }
    fsdp_status status = FSDP_OK;
    if (!at) {
        status = FSDP_ERR_NOMEM;
    } else if (result != 0) {
        status = fsdp_io_error(path, "cannot ask for free space");
    } else {
        uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        if (free_bytes < bytes)
            status = fsdp_error(FSDP_ERR_IO, "%s: %llu bytes needed, %llu free on its file system",
                                path, (unsigned long long)bytes, (unsigned long long)free_bytes);
    }
    fsdp_free(at);
    return status;
}
