/* See scan.h. */
#include "src/dashboard/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/dashboard/beneath.h"
#include "src/report/event_reader.h"
#include "src/train/checkpoint_folders.h"

enum {
    HEAD_BYTES = 64
};

void fsdp_scan_fini(fsdp_scan *scan)
{
    for (size_t i = 0; i < scan->n; i++)
        fsdp_free(scan->items[i].path);
    fsdp_free(scan->items);
    *scan = (fsdp_scan){0};
}

static fsdp_status add(fsdp_scan *scan, fsdp_found_kind kind, const char *path,
                       const struct stat *st)
{
    if (scan->n == FSDP_SCAN_FOUND) {
        scan->cut = true;
        return FSDP_OK;
    }
    char *copy = fsdp_strdup(path);
    if (!copy || !FSDP_GROW(scan->items, scan->cap, scan->n + 1)) {
        fsdp_free(copy);
        return FSDP_ERR_NOMEM;
    }
    scan->items[scan->n++] = (fsdp_found){.kind = kind,
                                          .inode = {st->st_dev, st->st_ino},
                                          .path = copy,
                                          .bytes = S_ISREG(st->st_mode) ? st->st_size : 0,
                                          .time = (double)st->st_mtim.tv_sec};
    return FSDP_OK;
}

/* --- files --- */

/* Return true if the file begins like a file of metrics. Other .jsonl files may have training
 * data. */
static bool begins_as_metrics(int dir, const char *name)
{
    static const char *const kinds[] = {"step", "validation", "epoch", "checkpoint", "summary"};
    char head[HEAD_BYTES + 1], kind[32];
    struct stat st;
    int fd;
    if (!fsdp_beneath_open_file(dir, name, &fd, &st))
        return false;
    const ssize_t n = pread(fd, head, HEAD_BYTES, 0);
    close(fd);
    if (n <= 0)
        return false;
    head[n] = 0;
    if (sscanf(head, " { \"kind\" : \"%31[a-z]\"", kind) != 1)
        return false;
    for (size_t i = 0; i < FSDP_LENGTH(kinds); i++)
        if (strcmp(kind, kinds[i]) == 0)
            return true;
    return false;
}

/* Return true if the file of metrics `name` has a folder with rank files next to it. When a run has
 * just begun, the folder exists, but the file of metrics is still empty. */
static bool has_ranks(int dir, const char *name)
{
    char folder[NAME_MAX + 8];
    struct stat st;
    const size_t n = strlen(name) - strlen(".jsonl");
    snprintf(folder, sizeof folder, "%.*s.ranks", (int)n, name);
    return fstatat(dir, folder, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Add the size of the event file `path` to the item of its folder. The first event file of a folder
 * creates the item. Ignore the file if the folder has a metrics.jsonl. */
static fsdp_status take_events(fsdp_scan *scan, int dir, const char *path, const struct stat *st)
{
    struct stat unused, of_folder;
    if (fstatat(dir, "metrics.jsonl", &unused, AT_SYMLINK_NOFOLLOW) == 0 ||
        fstat(dir, &of_folder) != 0)
        return FSDP_OK;
    const size_t n = strlen(path) - strlen(fsdp_path_name(path));
    char *folder = fsdp_strdup_printf("%.*s", (int)(n ? n - 1 : 0), path);
    fsdp_status status = folder ? FSDP_OK : FSDP_ERR_NOMEM;
    fsdp_found *found = NULL;
    for (size_t i = 0; folder && i < scan->n && !found; i++)
        if (scan->items[i].kind == FSDP_FOUND_EVENTS && strcmp(scan->items[i].path, folder) == 0)
            found = &scan->items[i];
    if (folder && !found) {
        const size_t before = scan->n;
        status = add(scan, FSDP_FOUND_EVENTS, folder, st);
        if (scan->n > before)
            scan->items[before].inode = (fsdp_inode){of_folder.st_dev, of_folder.st_ino};
    }
    if (found) {
        found->bytes += st->st_size;
        found->time =
            found->time > (double)st->st_mtim.tv_sec ? found->time : (double)st->st_mtim.tv_sec;
    }
    fsdp_free(folder);
    return status;
}

static fsdp_status take_file(fsdp_scan *scan, int dir, const char *name, const char *path,
                             const struct stat *st)
{
    if (fsdp_event_file_is_named(name))
        return take_events(scan, dir, path, st);
    if (fsdp_ends_with(name, ".log"))
        return add(scan, FSDP_FOUND_LOG, path, st);
    if (fsdp_ends_with(name, ".jsonl") && (has_ranks(dir, name) || begins_as_metrics(dir, name)))
        return add(scan, FSDP_FOUND_RUN, path, st);
    return FSDP_OK;
}

/* --- folders --- */

static bool is_checkpoint(const char *name)
{
    const char *rest;
    return (fsdp_checkpoint_step_of_name(name, &rest) >= 0 && !*rest) ||
           (fsdp_checkpoint_accelerate_number(name, &rest) >= 0 && !*rest);
}

static bool is_passed_over(const char *name)
{
    return name[0] == '.' || fsdp_ends_with(name, ".ranks") ||
           fsdp_atomic_directory_is_unfinished(name, NULL);
}

static fsdp_status scan_folder(fsdp_scan *scan, int dir, const char *path, int depth);

static fsdp_status take_entry(fsdp_scan *scan, int dir, const char *name, const char *path,
                              int depth)
{
    struct stat st;
    int below;
    if (is_passed_over(name) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return FSDP_OK;
    if (S_ISREG(st.st_mode))
        return take_file(scan, dir, name, path, &st);
    if (!S_ISDIR(st.st_mode))
        return FSDP_OK;
    if (is_checkpoint(name))
        return add(scan, FSDP_FOUND_CHECKPOINT, path, &st);
    if (depth == FSDP_SCAN_DEPTH) {
        scan->cut = true;
        return FSDP_OK;
    }
    if (!fsdp_beneath_open_folder(dir, name, &below))
        return FSDP_OK;
    return scan_folder(scan, below, path, depth + 1);
}

/* Look through the folder `dir`, whose path is `path`, and close it. */
static fsdp_status scan_folder(fsdp_scan *scan, int dir, const char *path, int depth)
{
    DIR *entries = fdopendir(dir);
    fsdp_status status = FSDP_OK;
    if (!entries) {
        close(dir);
        return FSDP_OK;
    }
    for (struct dirent *e; status == FSDP_OK && (e = readdir(entries));) {
        if (++scan->entries > FSDP_SCAN_ENTRIES) {
            scan->cut = true;
            break;
        }
        char *below = fsdp_path_join(path, e->d_name);
        status = below ? take_entry(scan, dirfd(entries), e->d_name, below, depth) : FSDP_ERR_NOMEM;
        fsdp_free(below);
    }
    closedir(entries);
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const fsdp_found *)a)->path, ((const fsdp_found *)b)->path);
}

fsdp_status fsdp_scan_folder(int root, fsdp_scan *scan)
{
    int dir;
    *scan = (fsdp_scan){0};
    if (!fsdp_beneath_open_folder(root, "", &dir))
        return FSDP_OK;
    /* `dir` is a copy of `root` and shares its read position, so open the folder again. */
    const int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(dir);
    if (own < 0)
        return FSDP_OK;
    const fsdp_status status = scan_folder(scan, own, "", 0);
    if (status != FSDP_OK) {
        fsdp_scan_fini(scan);
        return status;
    }
    if (scan->n)
        qsort(scan->items, scan->n, sizeof *scan->items, compare_paths);
    return FSDP_OK;
}
