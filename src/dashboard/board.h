/* Everything that the dashboard shows: the runs, checkpoints and logs in the folders that the user
 * has named.
 *
 * Note [Threads of the dashboard]. One thread, the reader, finds and reads files:
 * fsdp_board_turn(). The thread of the server answers requests. The lock of the board is held for a
 * few milliseconds at a time, while the reader takes new lines or while an answer is written, so a
 * request never waits for a long file to be read. The reader does not hold the lock while it looks
 * for files or checks checkpoints. */
#pragma once
#include <stdio.h>

#include "src/dashboard/checkpoints.h"
#include "src/dashboard/run.h"
#include "src/dashboard/scan.h"

enum {
    FSDP_BOARD_RUNS = 64,   /* maximum number of runs; the newest ones are kept */
    FSDP_BOARD_OTHERS = 512 /* maximum number of checkpoints, and of logs */
};

typedef struct fsdp_board_dir {
    char *path, *name; /* path as the user gave it; name of the folder; owned */
    int fd;            /* -1 while the folder cannot be opened */
    bool cut;          /* a limit was reached, so something in the folder may be missing */
} fsdp_board_dir;

typedef struct fsdp_board_run {
    fsdp_dashboard_run *run;
    fsdp_inode inode; /* identifies its file of metrics, or its folder of event files */
    int64_t stamp;    /* the board's revision when the run changed last */
    bool seen;        /* the last scan found the run */
} fsdp_board_run;

typedef struct fsdp_board_checkpoint {
    size_t dir; /* index of the board's folder */
    fsdp_inode inode;
    char *path; /* owned */
    double time;
    fsdp_checkpoint_look look;
    int64_t looked_ns; /* when the checkpoint was checked last (fsdp_clock_ns()); 0: never */
    bool seen;
} fsdp_board_checkpoint;

typedef struct fsdp_board_log {
    int64_t id;
    size_t dir; /* index of the board's folder */
    fsdp_inode inode;
    char *path; /* owned */
    int64_t bytes;
    double time;
    bool seen;
} fsdp_board_log;

typedef struct fsdp_board fsdp_board;
/* The data of a board, from which the server makes answers. */
struct fsdp_board_content {
    fsdp_board_dir *dirs; /* [n_dirs] */
    size_t n_dirs;
    fsdp_board_run *runs; /* [n_runs] */
    size_t n_runs, cap_runs;
    fsdp_board_checkpoint *checkpoints; /* [n_checkpoints] */
    size_t n_checkpoints, cap_checkpoints;
    fsdp_board_log *logs; /* [n_logs] */
    size_t n_logs, cap_logs;
    /* revision increases when a run changes. next_id is the id that a run or log got last. */
    int64_t revision, next_id;
};

/* Create a board of the folders `paths` [n]. If folders overlap, a run, checkpoint or log that is
 * in several of them is shown once, in the first one. If `may_come` is true, a folder that does not
 * exist yet is no error, because it may appear later. Returns FSDP_ERR_NOT_FOUND,
 * FSDP_ERR_INVALID or FSDP_ERR_IO with a message if a path is not a folder that can be read. */
FSDP_MUST_CHECK fsdp_status fsdp_board_create(const char *const *paths, size_t n, bool may_come,
                                              fsdp_board **board);
void fsdp_board_destroy(fsdp_board *board); /* accepts NULL */
/* Called by the reader in a loop. Read new lines for a few milliseconds, and from time to time look
 * for new files. Set *pause_ms to the time that the reader should sleep before the next call. */
FSDP_MUST_CHECK fsdp_status fsdp_board_turn(fsdp_board *board, int *pause_ms);
/* Lock the board, and return its content, which is valid until fsdp_board_unlock(). */
const struct fsdp_board_content *fsdp_board_lock(fsdp_board *board);
void fsdp_board_unlock(fsdp_board *board);
