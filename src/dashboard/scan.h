/* Finds the files and folders that the dashboard shows: files of metrics, event files, checkpoints
 * and logs. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <fsdp/base.h>

enum {
    FSDP_SCAN_DEPTH = 8,       /* the scan does not enter folders below this depth */
    FSDP_SCAN_ENTRIES = 50000, /* maximum number of directory entries that a scan reads */
    FSDP_SCAN_FOUND = 1024     /* maximum number of items that are returned */
};

typedef enum fsdp_found_kind {
    FSDP_FOUND_RUN,        /* a file of metrics */
    FSDP_FOUND_EVENTS,     /* a folder with event files of TensorBoard and no metrics.jsonl */
    FSDP_FOUND_CHECKPOINT, /* a folder checkpoint-<step> or checkpoint_<number> */
    FSDP_FOUND_LOG,        /* a file *.log, such as those of `fsdp launch --log-dir` */
} fsdp_found_kind;

/* The identity of a file or folder. Two paths with equal identities name the same file or
 * folder. */
typedef struct fsdp_inode {
    dev_t device;
    ino_t inode;
} fsdp_inode;

typedef struct fsdp_found {
    fsdp_found_kind kind;
    fsdp_inode inode;
    char *path;    /* relative to the folder; owned */
    int64_t bytes; /* size of the file, or of the event files together; 0 for a checkpoint */
    double time;   /* when it was changed last: seconds since 1970 */
} fsdp_found;

typedef struct fsdp_scan {
    fsdp_found *items; /* [n] in the order of their paths; owned */
    size_t n, cap;
    size_t entries; /* number of directory entries that were read */
    bool cut;       /* a limit was reached, so something may be missing */
} fsdp_scan;

/* Scan the folder with the descriptor `root`, and set *scan to the result. Symbolic links are not
 * followed. Folders that cannot be read are left out. */
FSDP_MUST_CHECK fsdp_status fsdp_scan_folder(int root, fsdp_scan *scan);
void fsdp_scan_fini(fsdp_scan *scan);
