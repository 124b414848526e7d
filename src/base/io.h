/* Files and directories: read-only mappings and atomic writes.
 *
 * A file or directory is written under a temporary name in the same folder and synced. Only then is
 * it renamed, and its folder is synced. A failure or a kill at any time leaves the old file or
 * directory, never a partial one. The message of every error contains the path and the system's
 * message. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* ---- paths ---- */
/* Return "dir/name", or only `name` if it is absolute or `dir` is empty. The caller owns the
 * result, which is NULL when out of memory. */
char *fsdp_path_join(const char *dir, const char *name);
/* Return the path without its last component: "a" for "a/b/", "." for "b", "/" for "/b". The caller
 * owns the result. */
char *fsdp_path_parent(const char *path);
/* Return the last component, a pointer into `path`: "b" for "a/b", "" for "a/b/". */
const char *fsdp_path_name(const char *path);
/* Return the length of `path` without its trailing slashes: 3 for "out/" and for "out". */
size_t fsdp_path_length(const char *path);
/* Return a copy of `path` without its trailing slashes. The caller owns the result. */
char *fsdp_path_stripped(const char *path);
/* Set *resolved to the absolute path without links that `path` has, or will have once it is made.
 * The caller owns *resolved. */
FSDP_MUST_CHECK fsdp_status fsdp_path_resolve(const char *path, char **resolved);
bool fsdp_path_is_file(const char *path);      /* true only for a regular file; follows links */
bool fsdp_path_is_directory(const char *path); /* follows links */
/* Return true if anything exists at `path`. For a dangling link, this returns true and
 * fsdp_path_is_file() returns false. A caller that opens every path that exists thus gets an error
 * that explains the dangling link. */
bool fsdp_path_exists(const char *path);
/* Return true if `dir` contains a regular file `name` or a link to one. Return false if the joined
 * path is longer than PATH_MAX. */
bool fsdp_directory_has_file(const char *dir, const char *name);
/* Set *place to the path at which a file written to `path` appears. This is `path` itself or, if it
 * is a symbolic link, the path at the end of the links, which need not exist. So the file does not
 * replace the link. Python's open(path, "w") does the same. The caller owns *place. Return
 * FSDP_ERR_IO if the links form a cycle. */
FSDP_MUST_CHECK fsdp_status fsdp_path_follow(const char *path, char **place);
/* Return FSDP_OK for a regular file, a directory, or a path that does not exist. Return
 * FSDP_ERR_INVALID for a pipe or a device, and FSDP_ERR_IO if the path cannot be examined, for
 * example because of a cycle of links. */
FSDP_MUST_CHECK fsdp_status fsdp_path_check(const char *path);
/* Return true if `path` is a regular file that occupies less disk space than half of its size. Such
 * a file has holes, which read as zeros, or the file system compresses it. In both cases, a copy of
 * the file may have holes where the file has blocks of zeros: the contents are the same. */
bool fsdp_path_is_sparse(const char *path);
/* Create a directory and its missing parents (mkdir -p). */
FSDP_MUST_CHECK fsdp_status fsdp_directory_make(const char *path);
/* List the names in a directory, without "." and "..", in byte order (strcmp). *names is one block
 * of memory. The caller owns it and frees it with fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_directory_list(const char *path, char ***names, size_t *count);
/* Remove a file, or a directory with its contents (rm -r). Links are removed, not followed. Return
 * FSDP_OK if the path does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tree_remove(const char *path);
/* Return FSDP_ERR_IO if the file system of `path` has fewer than `bytes` bytes free. The message
 * contains `bytes` and the free bytes. If `path` does not exist yet, its nearest existing ancestor
 * is examined. */
FSDP_MUST_CHECK fsdp_status fsdp_check_free_space(const char *path, uint64_t bytes);

/* ---- reading ---- */
typedef struct fsdp_mapping {
    const unsigned char *data; /* [bytes], page-aligned; NULL when the file is empty */
    size_t bytes;
} fsdp_mapping;

/* Map a regular file read-only. The file must not be truncated while it is mapped: touching pages
 * beyond its end raises SIGBUS. On FSDP_ERR_NOT_FOUND and FSDP_ERR_IO, the message contains the
 * path. */
FSDP_MUST_CHECK fsdp_status fsdp_file_map(const char *path, fsdp_mapping *mapping);
void fsdp_file_unmap(fsdp_mapping *mapping); /* sets *mapping to {0}; may be called again */

/* Read the whole file or pipe `path`, and append a NUL, which *bytes does not count. The caller
 * owns *text and frees it with fsdp_free(). Return FSDP_ERR_INVALID if there are more than
 * `max_bytes` bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_file_read(const char *path, size_t max_bytes, char **text,
                                           size_t *bytes);

/* ---- writing a file ---- */
typedef struct fsdp_atomic_file fsdp_atomic_file;

/* Begin a file that will become `path`, and remove the temporary files of `path` that killed
 * processes left behind. `reserve_bytes` is the size of the file, or 0 if the caller does not know
 * the size. This function reserves `reserve_bytes` bytes on the disk, so that a full disk causes an
 * error before anything is written. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_begin(const char *path, uint64_t reserve_bytes,
                                                   fsdp_atomic_file **file);
/* After this call, blocks of zeros are not written. They become holes in the file, which use no
 * space on the disk. No byte may be written twice, because zeros would not overwrite earlier data.
 * The file must have been begun with `reserve_bytes` 0, and only one thread may write to it. */
void fsdp_atomic_file_keep_holes(fsdp_atomic_file *file);
/* Append `data` [bytes] after the data of earlier appends. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_append(fsdp_atomic_file *file, const void *data,
                                                    size_t bytes);
/* An observer, which gets the bytes of each append, in one or more pieces. */
typedef fsdp_status fsdp_append_fn(void *context, const void *data, size_t bytes);
/* Make `see` the observer of all appends after this call. If `see` fails, the append fails. */
void fsdp_atomic_file_observe(fsdp_atomic_file *file, fsdp_append_fn *see, void *context);
/* Return the number of bytes appended so far. */
uint64_t fsdp_atomic_file_appended(const fsdp_atomic_file *file);
/* Write `data` [bytes] at `offset`. Several threads may do this at the same time. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_write_at(fsdp_atomic_file *file, uint64_t offset,
                                                      const void *data, size_t bytes);
/* Sync the file, rename it to its path, and sync the folder. `file` is freed, also on failure. On
 * failure, the temporary file is removed. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_commit(fsdp_atomic_file *file);
/* Remove the temporary file and free `file`. Accepts NULL. */
void fsdp_atomic_file_discard(fsdp_atomic_file *file);

/* Atomically write a file that contains `data` [bytes]. */
FSDP_MUST_CHECK fsdp_status fsdp_file_write(const char *path, const void *data, size_t bytes);
/* Copy a regular file atomically. */
FSDP_MUST_CHECK fsdp_status fsdp_file_copy(const char *from, const char *to);

/* ---- writing a directory ---- */
typedef struct fsdp_atomic_directory fsdp_atomic_directory;

typedef enum fsdp_existing {
    FSDP_EXISTING_REFUSE, /* begin() fails unless the directory is missing or empty */
    /* The old directory may have contents. A new file replaces an old file of the same name. All
     * other old files are kept, unless the function given to fsdp_atomic_directory_drop() says that
     * they are stale. */
    FSDP_EXISTING_UPDATE,
} fsdp_existing;

/* Create an empty directory next to `path`, which commit() will move to `path`. Missing parents are
 * created. Return FSDP_ERR_INVALID if `path` exists but is not a directory, if `existing` does not
 * allow replacing the directory `path`, or if `path` contains the working directory or the home
 * directory. Return FSDP_ERR_UNSUPPORTED if `path` is a mount point. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_begin(const char *path, fsdp_existing existing,
                                                        fsdp_atomic_directory **directory);
/* Return an error if begin() or commit() would fail for `path` now. Nothing is left behind, and
 * missing parents are not created. A program that writes only after hours of work calls this before
 * that work. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_check(const char *path, fsdp_existing existing);
/* Remove the temporary and old directories that unfinished writes of `path` on this host have left
 * behind. If `pid` is 0, remove those of all processes that have ended. Otherwise, remove those of
 * process `pid`. begin() calls this. A program should also call this shortly before it exits,
 * and after another process was killed. Directories that cannot be removed remain. */
void fsdp_atomic_directory_sweep(const char *path, int pid);
/* Return a temporary path next to `path`; the caller owns the result. The caller should remove
 * everything that it creates at this path. If this process is killed before that, sweep() removes
 * it. */
char *fsdp_atomic_directory_temporary(const char *path);
/* Return true if `name` has the form of a temporary name, which only unfinished writes use. If
 * `is_local` is not NULL, set *is_local to true if a process of this host made the name, else to
 * false. */
bool fsdp_atomic_directory_is_unfinished(const char *name, bool *is_local);
/* Return true if sweep() with these arguments would find anything to remove. */
bool fsdp_atomic_directory_is_pending(const char *path, int pid);
/* Return the path of the temporary directory, where the caller writes until commit(). */
const char *fsdp_atomic_directory_path(const fsdp_atomic_directory *directory);
/* Return true if a file or folder of the old directory is stale. It is stale if the new contents
 * replace it under another name, for example an old shard, or an index of another format. A stale
 * file is not kept, even if the new directory has no file of the same name.
 *
 * `old` and `fresh` are the paths of the old and the new directory. `name` is the path of a file or
 * folder relative to `old`. If a folder is stale or also exists in `fresh`, the function is called
 * for each entry of that folder, too. It is called for all entries of a folder before any of these
 * entries is kept in `fresh`. (Entries that other programs add during commit() are checked
 * later.) */
typedef bool fsdp_is_stale_fn(void *context, const char *old, const char *fresh, const char *name);
/* Set the function that commit() calls for the entries of the old directory. */
void fsdp_atomic_directory_drop(fsdp_atomic_directory *directory, fsdp_is_stale_fn *is_stale,
                                void *context);
/* Sync every file in the directory, then move the directory to its path, in one step if the file
 * system supports that. `directory` is freed, also on failure. A failure before the move leaves
 * `path` unchanged. The message of a later failure says which step failed. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_commit(fsdp_atomic_directory *directory);
/* Remove the temporary directory and free `directory`. Accepts NULL. */
void fsdp_atomic_directory_discard(fsdp_atomic_directory *directory);
