/* Writes a directory that appears atomically. It is written under a temporary name next to its
 * final path. Once the new directory is complete, it takes the place of the old directory at that
 * path, in one step if the file system supports this. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"
#include "src/base/io_testing.h"

enum {
    WALK_OPEN_FOLDERS = 16,
    MOUNT_BYTES = 16 << 10 /* size of the buffer for a line of /proc/self/mounts */
};

struct fsdp_atomic_directory {
    /* the final path, without trailing slashes; if it exists, its symbolic links are resolved */
    char *path;
    /* For `temporary` and `aside`, see Note [Names of what is unfinished] in unfinished.c. */
    char *temporary;
    char *aside;
    fsdp_existing existing;
    fsdp_is_stale_fn *is_stale; /* decides which entries of the old directory are not kept; NULL:
                                   all entries are kept */
    void *context;              /* argument of is_stale */
};

/* Return the path to which commit() renames the new directory; the caller owns it. If `path` is a
 * symbolic link to a directory, this is the path of that directory, so the link remains a link. */
static char *real_place(const char *path)
{
    char *resolved = realpath(path, NULL);
    char *place = fsdp_strdup(resolved ? resolved : path);
    free(resolved); /* allocated by realpath, not by fsdp_calloc */
    for (size_t n = place ? strlen(place) : 0; n > 1 && place[n - 1] == '/'; n--)
        place[n - 1] = 0;
    return place;
}

static bool is_empty(const char *path)
{
    char **names;
    size_t count = 1;
    if (fsdp_directory_list(path, &names, &count) == FSDP_OK)
        fsdp_free(names);
    return count == 0;
}

/* Return true if `inner` is `path` or is below it. `inner` need not exist. */
static bool contains_path(const char *path, const char *inner)
{
    char *real = realpath(inner, NULL);
    size_t n = strlen(path);
    bool yes = real && strncmp(real, path, n) == 0 && (real[n] == '/' || real[n] == 0 || n == 1);
    free(real);
    return yes;
}

/* Return an error if `path` is the working directory or the home directory, or contains one of
 * these directories. If the working directory were replaced, the caller would be left in a removed
 * directory. If the home directory were replaced, every old file in it would have to be linked into
 * the new directory; such a call is surely a mistake. */
static fsdp_status check_holds_nothing(const char *path)
{
    const char *home = getenv("HOME");
    if (contains_path(path, "."))
        return fsdp_error(FSDP_ERR_INVALID, "%s: cannot replace the working directory", path);
    if (home && *home && contains_path(path, home))
        return fsdp_error(FSDP_ERR_INVALID, "%s: cannot replace the home directory", path);
    return FSDP_OK;
}

static bool is_mount_point(const char *path)
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    char text[MOUNT_BYTES];
    struct mntent mount;
    bool found = false;
    while (mounts && !found && getmntent_r(mounts, &mount, text, sizeof text))
        found = strcmp(mount.mnt_dir, path) == 0;
    if (mounts)
        endmntent(mounts);
    return found;
}

/* Return an error if `path` is a mount point, because the kernel can neither rename nor exchange
 * it. */
static fsdp_status check_not_mounted(const char *path)
{
    if (is_mount_point(path))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: a file system is mounted there, so the directory cannot be "
                          "replaced; name a directory in it",
                          path);
    return FSDP_OK;
}

static fsdp_status check_place(const char *path, fsdp_existing existing)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? FSDP_OK : fsdp_io_error(path, "cannot write a directory there");
    if (!S_ISDIR(st.st_mode))
        return fsdp_error(FSDP_ERR_INVALID, "%s: exists and is not a directory", path);
    if (existing == FSDP_EXISTING_REFUSE && !is_empty(path))
        return fsdp_error(FSDP_ERR_INVALID, "%s: the directory exists and is not empty", path);
    FSDP_TRY(check_holds_nothing(path));
    return check_not_mounted(path);
}

static fsdp_status make_parent(const char *path)
{
    char *parent = fsdp_path_parent(path);
    fsdp_status status = parent ? fsdp_directory_make(parent) : FSDP_ERR_NOMEM;
    fsdp_free(parent);
    return status;
}

/* Check that a folder can be created next to `path`, by creating and removing one. If the parent of
 * `path` does not exist, do this in the nearest ancestor that exists. */
static fsdp_status probe_writable(const char *path)
{
    struct stat st;
    char *parent = fsdp_path_parent(path);
    while (parent && stat(parent, &st) != 0 && errno == ENOENT) {
        char *above = fsdp_path_parent(parent);
        fsdp_free(parent);
        parent = above;
    }
    /* Ranks of several hosts may probe the same folder at the same time, and may have equal process
     * ids. So the name also contains the time. */
    char *made = parent ? fsdp_strdup_printf("%s/.fsdp-probe-%d-%llx", parent, (int)getpid(),
                                             (unsigned long long)fsdp_clock_ns())
                        : NULL;
    fsdp_status status = made ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && (mkdir(made, 0777) != 0 || rmdir(made) != 0))
        status = fsdp_io_error(path, "cannot write a directory there");
    fsdp_free(made);
    fsdp_free(parent);
    return status;
}

fsdp_status fsdp_atomic_directory_check(const char *path, fsdp_existing existing)
{
    if (!*path)
        return fsdp_error(FSDP_ERR_INVALID, "the path of the output directory is empty");
    char *place = real_place(path);
    fsdp_status status = place ? check_place(place, existing) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = probe_writable(place);
    fsdp_free(place);
    return status;
}

char *fsdp_atomic_directory_temporary(const char *path)
{
    return fsdp_unfinished_name(path, FSDP_UNFINISHED);
}

static void free_directory(fsdp_atomic_directory *d)
{
    fsdp_free(d->path);
    fsdp_free(d->temporary);
    fsdp_free(d->aside);
    fsdp_free(d);
}

fsdp_status fsdp_atomic_directory_begin(const char *path, fsdp_existing existing,
                                        fsdp_atomic_directory **directory)
{
    if (!*path)
        return fsdp_error(FSDP_ERR_INVALID, "the path of the output directory is empty");
    fsdp_atomic_directory *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->existing = existing;
    d->path = real_place(path);
    if (d->path) {
        d->temporary = fsdp_unfinished_name(d->path, FSDP_UNFINISHED);
        d->aside = fsdp_unfinished_name(d->path, FSDP_ASIDE);
    }
    fsdp_status status = d->path && d->temporary && d->aside ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = check_place(d->path, existing);
    if (status == FSDP_OK)
        status = make_parent(d->path);
    if (status == FSDP_OK) {
        fsdp_atomic_directory_sweep(d->path, 0);
        /* Also remove what was left behind by an earlier process that had the same pid as this one.
         * Such a process was killed earlier, for example in another container. */
        fsdp_atomic_directory_sweep(d->path, (int)getpid());
    }
    if (status == FSDP_OK && mkdir(d->temporary, 0777) != 0)
        status = fsdp_io_error(d->path, "cannot write a directory there");
    if (status != FSDP_OK) {
        free_directory(d);
        return status;
    }
    *directory = d;
    return FSDP_OK;
}

/* ---- leftovers of killed processes ----------------------------------------------------------- */

bool fsdp_atomic_directory_is_unfinished(const char *name, bool *is_local)
{
    const char *end = strrchr(name, '.');
    bool local = false;
    const bool is = end && (fsdp_unfinished_owner(end, "", FSDP_UNFINISHED, &local) ||
                            fsdp_unfinished_owner(end, "", FSDP_ASIDE, &local));
    if (is_local)
        *is_local = local;
    return is;
}

/* Remove `path`. Try several times, because threads of this rank and of other ranks may still be
 * creating files in it. */
static void remove_if_possible(const char *path)
{
    enum {
        TRIES = 20
    };
    for (int i = 0; i < TRIES && fsdp_tree_remove(path) != FSDP_OK; i++)
        ;
}

/* `aside` is the old directory, which a killed process had moved away from `path`. If nothing is at
 * `path` now, move the old directory back there, else remove it. */
static void sweep_aside(const char *path, const char *aside)
{
    struct stat st;
    if (lstat(path, &st) != 0 && errno == ENOENT)
        (void)rename(aside, path);
    else
        remove_if_possible(aside);
}

/* Count the temporary and old directories that process `pid` left behind next to `path`. If `pid`
 * is 0, count the directories of all processes that have ended. If `removing` is true, also remove
 * these directories or move them back. */
static size_t sweep_left(const char *path, int pid, bool removing)
{
    char *place = real_place(path), *parent = place ? fsdp_path_parent(place) : NULL;
    char **names = NULL;
    size_t count = 0, found = 0;
    if (!parent || fsdp_directory_list(parent, &names, &count) != FSDP_OK)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        const char *base = fsdp_path_name(place);
        bool temporary = fsdp_unfinished_is_abandoned(names[i], base, FSDP_UNFINISHED, pid);
        if (!temporary && !fsdp_unfinished_is_abandoned(names[i], base, FSDP_ASIDE, pid))
            continue;
        found++;
        char *left = removing ? fsdp_path_join(parent, names[i]) : NULL;
        if (left && temporary)
            remove_if_possible(left);
        else if (left)
            sweep_aside(place, left);
        fsdp_free(left);
    }
    fsdp_free(names);
    fsdp_free(parent);
    fsdp_free(place);
    return found;
}

void fsdp_atomic_directory_sweep(const char *path, int pid)
{
    (void)sweep_left(path, pid, true);
}

bool fsdp_atomic_directory_is_pending(const char *path, int pid)
{
    return sweep_left(path, pid, false) > 0;
}

const char *fsdp_atomic_directory_path(const fsdp_atomic_directory *directory)
{
    return directory->temporary;
}

/* ---- keeping old entries --------------------------------------------------------------------- */

void fsdp_atomic_directory_drop(fsdp_atomic_directory *directory, fsdp_is_stale_fn *is_stale,
                                void *context)
{
    directory->is_stale = is_stale;
    directory->context = context;
}

/* Arguments of the keep_ functions below. To keep an entry of the directory `old` means to link or
 * copy it into the directory `fresh`. */
typedef struct keeping {
    const fsdp_atomic_directory *d;
    const char *old, *fresh;
    dev_t device; /* device that contains `old` */
} keeping;

/* Give the copy `to` the permissions, the times and, if possible, the owner of the original, as
 * described by `st`. */
static fsdp_status copy_attributes(const char *to, const struct stat *st)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    struct stat now;
    if (stat(to, &now) != 0 || chmod(to, st->st_mode & 07777) != 0 ||
        utimensat(AT_FDCWD, to, times, 0) != 0)
        return fsdp_io_error(to, "cannot set permissions and times");
    /* Only root can change the owner, so a failure of chown() is ignored. */
    if ((now.st_uid != st->st_uid || now.st_gid != st->st_gid) &&
        chown(to, st->st_uid, st->st_gid) == 0 && chmod(to, st->st_mode & 07777) != 0)
        return fsdp_io_error(to, "cannot set permissions");
    return FSDP_OK;
}

/* Keep the file `from` by making `to` a hard link to it. No data is copied, and a program that has
 * the file open continues to use the same file. The old directory remains complete until the
 * exchange. */
static fsdp_status keep_file(const char *from, const char *to, const struct stat *st)
{
    if (!fsdp_io_should_fail(FSDP_IO_LINK) && link(from, to) == 0)
        return FSDP_OK;
    if (errno == EXDEV)
        return fsdp_error(FSDP_ERR_INVALID, "%s: on another file system, which is mounted there",
                          from);
    if (!S_ISREG(st->st_mode))
        return fsdp_io_error(from, "cannot keep");
    FSDP_TRY(fsdp_file_copy(from, to)); /* the file system does not support hard links */
    return copy_attributes(to, st);
}

static fsdp_status keep_tree(const keeping *k, const char *from, const char *to);

static fsdp_status keep_folder(const keeping *k, const char *from, const char *to,
                               const struct stat *st)
{
    char **names;
    size_t count;
    if (st->st_dev != k->device)
        return fsdp_error(FSDP_ERR_INVALID, "%s: another file system is mounted there", from);
    if (mkdir(to, 0700) != 0)
        return fsdp_io_error(from, "cannot keep");
    FSDP_TRY(fsdp_directory_list(from, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        char *inner = fsdp_path_join(from, names[i]), *kept = fsdp_path_join(to, names[i]);
        status = inner && kept ? keep_tree(k, inner, kept) : FSDP_ERR_NOMEM;
        fsdp_free(inner);
        fsdp_free(kept);
    }
    fsdp_free(names);
    return status == FSDP_OK ? copy_attributes(to, st) : status;
}

/* Keep the file `from`, or the folder `from` with everything in it. */
static fsdp_status keep_tree(const keeping *k, const char *from, const char *to)
{
    struct stat st;
    if (lstat(from, &st) != 0)
        return fsdp_io_error(from, "cannot keep");
    return S_ISDIR(st.st_mode) ? keep_folder(k, from, to, &st) : keep_file(from, to, &st);
}

static fsdp_status keep_entries(const keeping *k, const char *folder);

/* An entry of a folder in the old directory, with the result of is_stale() for this entry. A folder
 * is usually kept as a whole. Its entries are kept one by one if the folder is stale, or if the new
 * directory also has a folder with its path. */
typedef struct entry {
    /* path relative to the old directory; also relative to the new directory */
    char *name;
    bool is_stale;
} entry;

static fsdp_status keep_at(const keeping *k, const entry *e, const char *from, const char *to)
{
    struct stat st, st_new;
    if (lstat(from, &st) != 0)
        return fsdp_io_error(from, "cannot keep");
    const bool is_folder = S_ISDIR(st.st_mode), is_new = lstat(to, &st_new) == 0;
    if (is_new && !e->is_stale && is_folder != S_ISDIR(st_new.st_mode))
        return fsdp_error(FSDP_ERR_INVALID, "%s: a %s is there, and a %s is to be written", from,
                          is_folder ? "directory" : "file", is_folder ? "file" : "directory");
    if (is_folder && (is_new || e->is_stale))
        return keep_entries(k, e->name);
    if (is_new || e->is_stale)
        return FSDP_OK;
    /* The parent may be a folder that was not kept, because it is stale. So it may be missing in
     * the new directory. */
    FSDP_TRY(make_parent(to));
    return keep_tree(k, from, to);
}

static fsdp_status keep_entry(const keeping *k, const entry *e)
{
    char *from = fsdp_path_join(k->old, e->name), *to = fsdp_path_join(k->fresh, e->name);
    fsdp_status status = from && to ? keep_at(k, e, from, to) : FSDP_ERR_NOMEM;
    fsdp_free(from);
    fsdp_free(to);
    return status;
}

/* Call is_stale() for all entries of the folder. Call this before any entry of the folder is kept:
 * is_stale() looks for entries in the new directory, and would mistake a kept entry for one that
 * was newly written. */
static fsdp_status list_entries(const keeping *k, const char *folder, char *const *names,
                                entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        entries[i].name = *folder ? fsdp_path_join(folder, names[i]) : fsdp_strdup(names[i]);
        if (!entries[i].name)
            return FSDP_ERR_NOMEM;
        entries[i].is_stale =
            k->d->is_stale && k->d->is_stale(k->d->context, k->old, k->fresh, entries[i].name);
    }
    return FSDP_OK;
}

static fsdp_status keep_listed(const keeping *k, const char *folder, char *const *names, size_t n)
{
    entry *entries = fsdp_calloc(n, sizeof *entries);
    fsdp_status status =
        entries || n == 0 ? list_entries(k, folder, names, entries, n) : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        status = keep_entry(k, &entries[i]);
    for (size_t i = 0; entries && i < n; i++)
        fsdp_free(entries[i].name);
    fsdp_free(entries);
    return status;
}

/* Keep those entries of `folder` that are neither stale nor in the new directory. The path `folder`
 * is relative to the old directory; "" is the old directory itself. */
static fsdp_status keep_entries(const keeping *k, const char *folder)
{
    char **names, *path = *folder ? fsdp_path_join(k->old, folder) : fsdp_strdup(k->old);
    size_t count;
    fsdp_status status = path ? fsdp_directory_list(path, &names, &count) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    FSDP_TRY(status);
    status = keep_listed(k, folder, names, count);
    fsdp_free(names);
    return status;
}

/* Keep the entries of the old directory `old` that are not stale: link or copy them into the new
 * directory `fresh`. A file whose name already exists in `fresh` is skipped. Either that file is
 * new, or an earlier call has kept it. */
static fsdp_status keep_others(const fsdp_atomic_directory *d, const char *old, const char *fresh)
{
    struct stat st;
    if (stat(old, &st) != 0)
        return fsdp_io_error(old, "cannot keep what is there");
    const keeping k = {.d = d, .old = old, .fresh = fresh, .device = st.st_dev};
    return keep_entries(&k, "");
}

/* ---- moving into place ----------------------------------------------------------------------- */

static int sync_visited(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)type, (void)at;
    return S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) ? (int)fsdp_io_sync_path(path) : 0;
}

static fsdp_status sync_tree(const char *path)
{
    int result = nftw(path, sync_visited, WALK_OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    return result == -1 ? fsdp_io_error(path, "cannot sync") : (fsdp_status)result;
}

/* Give the new directory the permissions and, if possible, the owner of the old one. */
static fsdp_status take_permissions(const fsdp_atomic_directory *d)
{
    struct stat st, now;
    if (stat(d->path, &st) != 0 || stat(d->temporary, &now) != 0)
        return fsdp_io_error(d->path, "cannot read the permissions");
    if (now.st_uid != st.st_uid || now.st_gid != st.st_gid)
        (void)!chown(d->temporary, st.st_uid, st.st_gid); /* only root can do this */
    if (chmod(d->temporary, st.st_mode & 07777) != 0)
        return fsdp_io_error(d->path, "cannot set the permissions");
    return FSDP_OK;
}

static bool exchange_names(const fsdp_atomic_directory *d)
{
    return renameat2(AT_FDCWD, d->temporary, AT_FDCWD, d->path, RENAME_EXCHANGE) == 0;
}

/* After exchange_names(), the old directory has the name `temporary`, so discard() would remove it,
 * together with files that other programs may just have created in it. To prevent this, rename the
 * old directory to `aside`. */
static fsdp_status move_old_aside(const fsdp_atomic_directory *d)
{
    if (!fsdp_io_should_fail(FSDP_IO_RENAME) && rename(d->temporary, d->aside) == 0)
        return FSDP_OK;
    fsdp_status status = fsdp_io_error(d->path, "cannot move the old directory away");
    (void)exchange_names(d);
    return status;
}

/* Move the new directory to `path`, and the old directory to `aside`. */
static fsdp_status exchange_directories(const fsdp_atomic_directory *d)
{
    if (exchange_names(d))
        return move_old_aside(d);
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return fsdp_io_error(d->path, "cannot exchange the directory");
    if (rename(d->path, d->aside) != 0)
        return fsdp_io_error(d->path, "cannot move the old directory away");
    if (rename(d->temporary, d->path) == 0)
        return FSDP_OK;
    fsdp_status status = fsdp_io_error(d->path, "cannot rename the finished directory");
    if (rename(d->aside, d->path) != 0)
        fsdp_error_context(status, "%s holds the old directory", d->aside);
    return status;
}

static fsdp_status move_into_place(const fsdp_atomic_directory *d)
{
    if (is_empty(d->path)) /* false if there is no directory at `path` */
        FSDP_TRY(take_permissions(d));
    /* This rename succeeds if the directory at `path` is missing or empty. */
    if (rename(d->temporary, d->path) == 0)
        return FSDP_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fsdp_io_error(d->path, "cannot rename the finished directory");
    FSDP_TRY(check_place(d->path, d->existing)); /* the directory may have appeared since begin() */
    FSDP_TRY(keep_others(d, d->path, d->temporary));
    FSDP_TRY(take_permissions(d));
    FSDP_TRY(sync_tree(d->temporary));
    FSDP_TRY(fsdp_tree_remove(d->aside));
    FSDP_TRY(exchange_directories(d));
    /* Other programs may have created entries in the old directory before the exchange. Keep these
     * entries, too. */
    fsdp_status status = keep_others(d, d->aside, d->path);
    if (status == FSDP_OK)
        status = fsdp_tree_remove(d->aside);
    fsdp_error_context(status, "%s is in place, but the old directory remains", d->path);
    return status;
}

fsdp_status fsdp_atomic_directory_commit(fsdp_atomic_directory *directory)
{
    char *parent = fsdp_path_parent(directory->path);
    fsdp_status status = parent ? sync_tree(directory->temporary) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = move_into_place(directory);
    if (status == FSDP_OK)
        status = fsdp_io_sync_path(parent);
    fsdp_free(parent);
    fsdp_atomic_directory_discard(directory);
    return status;
}

void fsdp_atomic_directory_discard(fsdp_atomic_directory *directory)
{
    if (!directory)
        return;
    /* The removal may set another error message. The caller may be about to return an earlier
     * error, and must not lose its message. So save this thread's message before the removal, and
     * restore it afterwards. The status that is saved with the message does not matter, but it must
     * not be FSDP_OK. */
    fsdp_saved_error error;
    fsdp_error_save(FSDP_ERR_IO, &error);
    remove_if_possible(directory->temporary);
    (void)fsdp_error_restore(&error);
    free_directory(directory);
}
