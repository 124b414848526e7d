/* Files and directories: read-only mappings, and writing that is whole or not at all.
 *
 * What is written appears under its name only when it is complete and on the disk: it is written
 * to a temporary name in the same folder, synced, renamed, and the folder is synced. A failure or
 * a kill at any instant leaves the old file or directory, never a half-written one. Every error
 * names the path and what the system said. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* ---- paths ---- */
/* "a/b"; `name` alone when it is absolute or `dir` is empty. The caller's, NULL out of memory. */
char *fsdp_path_join(const char *dir, const char *name);
/* Everything before the last name: "a" for "a/b/", "." for "b", "/" for "/b". */
char *fsdp_path_parent(const char *path);
/* The last name: "b" for "a/b"; a pointer into `path`. */
const char *fsdp_path_name(const char *path);
/* Without the slashes at its end: "out/" and "out" are the same folder. */
size_t fsdp_path_length(const char *path);
char *fsdp_path_stripped(const char *path);    /* that much of it, owned */
bool fsdp_path_is_file(const char *path);      /* regular, links followed */
bool fsdp_path_is_directory(const char *path); /* links followed */
/* Anything of that name, also a link to what does not exist: opening it then says why it cannot be
 * read, where fsdp_path_is_file() would have it look as if it were not there. */
bool fsdp_path_is_there(const char *path);
/* Is it a regular file, a directory, or not there? FSDP_ERR_INVALID for pipes and devices,
 * FSDP_ERR_IO for what cannot be looked at, as links that lead back to themselves. */
FSDP_MUST_CHECK fsdp_status fsdp_path_check(const char *path);
/* A regular file of which less than half lies on the disk: the rest are holes, which read as zeros.
 * Also one that its file system compresses so far: a copy with holes reads the same. */
bool fsdp_path_is_sparse(const char *path);
/* mkdir -p. */
FSDP_MUST_CHECK fsdp_status fsdp_directory_make(const char *path);
/* Names of a directory without "." and "..", sorted by bytes; one block, ended by fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_directory_list(const char *path, char ***names, size_t *count);
/* rm -r; links are removed, not followed. FSDP_OK if it does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tree_remove(const char *path);
/* FSDP_ERR_IO naming both figures if the file system of `path` (which need not exist yet; its
 * parents are asked) has fewer than `bytes` free. */
FSDP_MUST_CHECK fsdp_status fsdp_check_free_space(const char *path, uint64_t bytes);

/* ---- reading ---- */
typedef struct fsdp_mapping {
    const unsigned char *data; /* [bytes], page-aligned; NULL when the file is empty */
    size_t bytes;
} fsdp_mapping;

/* Map a regular file read-only. The file must not be shortened while it is mapped: touching pages
 * beyond its end raises SIGBUS. FSDP_ERR_NOT_FOUND or FSDP_ERR_IO names the path. */
FSDP_MUST_CHECK fsdp_status fsdp_file_map(const char *path, fsdp_mapping *mapping);
void fsdp_file_unmap(fsdp_mapping *mapping); /* may be called again; all zero afterwards */

/* The whole file and a NUL behind it; the caller's, ended by fsdp_free(). Pipes too.
 * FSDP_ERR_INVALID if it is larger than `max_bytes`. */
FSDP_MUST_CHECK fsdp_status fsdp_file_read(const char *path, size_t max_bytes, char **text,
                                           size_t *bytes);

/* ---- writing a file ---- */
typedef struct fsdp_atomic_file fsdp_atomic_file;

/* A file that will become `path`; what killed processes left of it goes. `reserve_bytes` > 0: its
 * final size, reserved on the disk now, so that a full disk is reported before the work; the file
 * has that size. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_begin(const char *path, uint64_t reserve_bytes,
                                                   fsdp_atomic_file **file);
/* From now on blocks of zeros are not written: they become holes of the file, which take no place
 * on the disk. So nothing may be written twice: zeros would leave what was there. Only for files
 * that were begun without a size, and for one thread at a time. */
void fsdp_atomic_file_keep_holes(fsdp_atomic_file *file);
/* Append `data` [bytes], after what earlier appends wrote. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_append(fsdp_atomic_file *file, const void *data,
                                                    size_t bytes);
/* What sees the bytes of each append. */
typedef fsdp_status fsdp_append_fn(void *context, const void *data, size_t bytes);
/* Have `see` called with all that is appended from now on; its failure is the append's. */
void fsdp_atomic_file_observe(fsdp_atomic_file *file, fsdp_append_fn *see, void *context);
/* Bytes that were appended so far. */
uint64_t fsdp_atomic_file_appended(const fsdp_atomic_file *file);
/* Write at `offset`. Threads may do this at the same time. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_write_at(fsdp_atomic_file *file, uint64_t offset,
                                                      const void *data, size_t bytes);
/* Sync, rename, sync the folder. `file` is gone afterwards, also when this fails: then the
 * temporary file is removed. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_file_commit(fsdp_atomic_file *file);
/* Give up: the temporary file is removed. Accepts NULL. */
void fsdp_atomic_file_discard(fsdp_atomic_file *file);

/* All of the above for `data` [bytes]. */
FSDP_MUST_CHECK fsdp_status fsdp_file_write(const char *path, const void *data, size_t bytes);
/* Copy a regular file, whole or not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_file_copy(const char *from, const char *to);

/* ---- writing a directory ---- */
typedef struct fsdp_atomic_directory fsdp_atomic_directory;

typedef enum fsdp_existing {
    FSDP_EXISTING_REFUSE, /* an error unless there is none or it is empty */
    FSDP_EXISTING_UPDATE, /* files of the new one replace those of the same name; all others are
                             kept, except for those that fsdp_atomic_directory_drop() names */
} fsdp_existing;

/* Make an empty directory beside `path`, which will become `path`; missing parents are made.
 * FSDP_ERR_INVALID if `path` exists and may not be replaced, is no directory, or holds the working
 * directory or the home directory. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_begin(const char *path, fsdp_existing existing,
                                                        fsdp_atomic_directory **directory);
/* Could begin() and commit() work there? Nothing is made, missing parents neither. For programs
 * that write after hours: they ask before. */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_check(const char *path, fsdp_existing existing);
/* Remove what an unfinished write of `path` by process `pid` of this host left; 0: by every process
 * that runs no more. Called by begin(), and by whoever ends a process or survives one. What cannot
 * be removed stays. */
void fsdp_atomic_directory_sweep(const char *path, int pid);
/* A path beside `path`, the caller's, for what sweep() is to remove if this process cannot. */
char *fsdp_atomic_directory_temporary(const char *path);
/* Is `name` one that only an unfinished write gives to what it makes, or moves away? */
bool fsdp_atomic_directory_is_unfinished(const char *name);
/* Is there anything that sweep() would remove? */
bool fsdp_atomic_directory_is_pending(const char *path, int pid);
/* Where to write meanwhile. */
const char *fsdp_atomic_directory_path(const fsdp_atomic_directory *directory);
/* Which files of the old directory are parts of what the new one replaces, and go with it though
 * the new one has no file of that name: stale shards, an index of another format.
 *
 * @param old, fresh the old and the new directory, both complete, before anything is kept
 * @param name       of a file or folder that is in `old`, relative to it. Of a folder for which the
 *                   answer is yes, or that `fresh` has too, each entry is asked for. */
typedef bool fsdp_is_stale_fn(void *context, const char *old, const char *fresh, const char *name);
void fsdp_atomic_directory_drop(fsdp_atomic_directory *directory, fsdp_is_stale_fn *is_stale,
                                void *context);
/* Sync every file in it, then move it into place, in one step where the file system can. Gone
 * afterwards, also on failure: then `path` is as it was (unless the message says that only the old
 * directory could not be removed). */
FSDP_MUST_CHECK fsdp_status fsdp_atomic_directory_commit(fsdp_atomic_directory *directory);
/* Give up: the temporary directory is removed. Accepts NULL. */
void fsdp_atomic_directory_discard(fsdp_atomic_directory *directory);
