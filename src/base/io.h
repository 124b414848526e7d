/* Files and directories: read-only mappings and atomic writes.
 *
 * A file or directory appears under its name only when it is complete and on the disk: it is
 * written under a temporary name in the same folder, synced and renamed, and the folder is synced.
 * A failure or a kill at any time leaves the old file or directory, never a partial one. Every
 * error names the path and the system's message. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* ---- paths ---- */
/* "a/b"; only `name` if it is absolute or `dir` is empty. Owned by the caller; NULL when out of
 * memory. */
char *fsdp_path_join(const char *dir, const char *name);
/* Everything before the last name: "a" for "a/b/", "." for "b", "/" for "/b". */
char *fsdp_path_parent(const char *path);
/* The last name: "b" for "a/b"; a pointer into `path`. */
const char *fsdp_path_name(const char *path);
/* Length without trailing slashes: "out/" and "out" are the same folder. */
size_t fsdp_path_length(const char *path);
char *fsdp_path_stripped(const char *path);    /* a copy of that length, owned by the caller */
bool fsdp_path_is_file(const char *path);      /* regular, links followed */
bool fsdp_path_is_directory(const char *path); /* links followed */
/* Whether anything of that name exists, including a dangling link. For a dangling link,
 * fsdp_path_is_file() is false, but opening it reports why it cannot be read. */
bool fsdp_path_is_there(const char *path);
/* Whether `dir` has a regular file of that name, links followed; also false if the joined path is
 * longer than PATH_MAX. */
bool fsdp_directory_has_file(const char *dir, const char *name);
/* FSDP_OK for a regular file, a directory, or a path that does not exist. FSDP_ERR_INVALID for
 * pipes and devices; FSDP_ERR_IO if the path cannot be examined, as with a cycle of links. */
FSDP_MUST_CHECK fsdp_status fsdp_path_check(const char *path);
/* Whether less than half of a regular file is on the disk: the rest are holes, which read as zeros.
 * Also true for a file that its file system compresses to that size. A copy with holes reads the
 * same. */
bool fsdp_path_is_sparse(const char *path);
/* mkdir -p. */
FSDP_MUST_CHECK fsdp_status fsdp_directory_make(const char *path);
/* The entries of a directory without "." and "..", sorted by bytes. One block, freed by
 * fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_directory_list(const char *path, char ***names, size_t *count);
/* rm -r; links are removed, not followed. FSDP_OK if the path does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tree_remove(const char *path);
/* FSDP_ERR_IO, with both numbers, if the file system of `path` has fewer than `bytes` free. `path`
 * need not exist yet; then its nearest existing parent is examined. */
FSDP_MUST_CHECK fsdp_status fsdp_check_free_space(const char *path, uint64_t bytes);

/* ---- reading ---- */
typedef struct fsdp_mapping {
    const unsigned char *data; /* [bytes], page-aligned; NULL when the file is empty */
    size_t bytes;
} fsdp_mapping;

/* Map a regular file read-only. The file must not be truncated while it is mapped: touching pages
 * beyond its end raises SIGBUS. FSDP_ERR_NOT_FOUND or FSDP_ERR_IO names the path. */
FSDP_MUST_CHECK fsdp_status fsdp_file_map(const char *path, fsdp_mapping *mapping);
void fsdp_file_unmap(fsdp_mapping *mapping); /* may be called again; all zero afterwards */

/* Read the whole file, with a NUL appended. The text is owned by the caller and freed by
 * fsdp_free(). Also reads pipes. FSDP_ERR_INVALID if the file is larger than `max_bytes`. */
FSDP_MUST_CHECK fsdp_status fsdp_file_read(const char *path, size_t max_bytes, char **text,
                                           size_t *bytes);

/* ---- writing a file ---- */
typedef struct fsdp_atomic_file fsdp_atomic_file;

/* Begin a file that will become `path`. Removes what killed processes left of it. `reserve_bytes` >
 * 0: the size of the file, which is reserved on the disk now so that a full disk is reported before
 * the work. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_begin(const char *path, uint64_t reserve_bytes,
                                                   fsdp_atomic_file **file);
/* From now on, blocks of zeros are not written: they become holes of the file, which take no space
 * on the disk. Nothing may be written twice, since zeros would not replace earlier data. Only for
 * files that were begun without a size, and for one thread at a time. */
void fsdp_atomic_file_keep_holes(fsdp_atomic_file *file);
/* Append `data` [bytes] after the data of earlier appends. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_append(fsdp_atomic_file *file, const void *data,
                                                    size_t bytes);
/* Receives the bytes of each append. */
typedef fsdp_status fsdp_append_fn(void *context, const void *data, size_t bytes);
/* Call `see` with everything that is appended from now on. If it fails, the append fails. */
void fsdp_atomic_file_observe(fsdp_atomic_file *file, fsdp_append_fn *see, void *context);
/* Bytes appended so far. */
uint64_t fsdp_atomic_file_appended(const fsdp_atomic_file *file);
/* Write at `offset`. Several threads may do this at the same time. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_write_at(fsdp_atomic_file *file, uint64_t offset,
                                                      const void *data, size_t bytes);
/* Sync, rename, and sync the folder. Frees `file`, also on failure; then the temporary file is
 * removed. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_commit(fsdp_atomic_file *file);
/* Remove the temporary file and free `file`. Accepts NULL. */
void fsdp_atomic_file_discard(fsdp_atomic_file *file);

/* Begin, append `data` [bytes] and commit. */
FSDP_MUST_CHECK fsdp_status fsdp_file_write(const char *path, const void *data, size_t bytes);
/* Copy a regular file atomically. */
FSDP_MUST_CHECK fsdp_status fsdp_file_copy(const char *from, const char *to);

/* ---- writing a directory ---- */
typedef struct fsdp_atomic_directory fsdp_atomic_directory;

typedef enum fsdp_existing {
    FSDP_EXISTING_REFUSE, /* an error unless the directory is missing or empty */
    FSDP_EXISTING_UPDATE, /* files of the new one replace those of the same name; others are kept,
                             except those that fsdp_atomic_directory_drop() selects */
} fsdp_existing;

/* Create an empty directory next to `path`, which will become `path`. Missing parents are created.
 * FSDP_ERR_INVALID if `path` exists and may not be replaced, is not a directory, or contains the
 * working directory or the home directory. FSDP_ERR_UNSUPPORTED if it is a mount point. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_begin(const char *path, fsdp_existing existing,
                                                        fsdp_atomic_directory **directory);
/* Check whether begin() and commit() could work there. Creates nothing, not even missing parents.
 * For programs that write only after hours of work and check before. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_check(const char *path, fsdp_existing existing);
/* Remove what an unfinished write of `path` by process `pid` of this host has left; 0: by any
 * process that no longer runs. Called by begin(), and by code that ends a process or survives one.
 * What cannot be removed is left. */
void fsdp_atomic_directory_sweep(const char *path, int pid);
/* A path next to `path`, owned by the caller, that sweep() removes if this process does not. */
char *fsdp_atomic_directory_temporary(const char *path);
/* Whether `name` is one that only an unfinished write uses for files that it creates or moves
 * away. */
bool fsdp_atomic_directory_is_unfinished(const char *name);
/* Whether there is anything that sweep() would remove. */
bool fsdp_atomic_directory_is_pending(const char *path, int pid);
/* The path to write to until commit(). */
const char *fsdp_atomic_directory_path(const fsdp_atomic_directory *directory);
/* Whether a file of the old directory is part of what the new one replaces, so that it is deleted
 * even if the new one has no file of that name: stale shards, an index of another format.
 *
 * @param old, fresh the old and the new directory, both complete, before anything is kept
 *
 * @param name       a file or folder in `old`, relative to it. For a folder that is stale or that
 * `fresh` has too, the function is called for each entry. */
typedef bool fsdp_is_stale_fn(void *context, const char *old, const char *fresh, const char *name);
void fsdp_atomic_directory_drop(fsdp_atomic_directory *directory, fsdp_is_stale_fn *is_stale,
                                void *context);
/* Sync every file in the directory, then move it into place, in one step if the file system
 * supports it. Frees `directory`, also on failure; then `path` is unchanged, unless the message
 * says that only the old directory could not be removed. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_commit(fsdp_atomic_directory *directory);
/* Remove the temporary directory and free `directory`. Accepts NULL. */
void fsdp_atomic_directory_discard(fsdp_atomic_directory *directory);
