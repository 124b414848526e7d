/* One run: its file of metrics, the files of its ranks, and run.json with its options. */
#pragma once
#include "src/dashboard/curve.h"
#include "src/dashboard/rank.h"
#include "src/report/metrics.h"

enum {
    FSDP_RUN_CURVES = 32,     /* maximum number of curves of a run; further keys are not shown */
    FSDP_RUN_RANKS = 256,     /* maximum number of ranks of a run that are shown */
    FSDP_RUN_CHECKPOINTS = 64 /* number of newest saves that are kept */
};

typedef struct fsdp_run_curve {
    char name[64]; /* such as "train/loss", "eval/accuracy" */
    fsdp_curve curve;
} fsdp_run_curve;

/* A line about a checkpoint that was saved; see fsdp_checkpoint_report. */
typedef struct fsdp_run_save {
    double step, seconds, call_s, held_s, copied_bytes;
} fsdp_run_save;

typedef struct fsdp_dashboard_run {
    int64_t id;         /* a number that no other run of this server has */
    int64_t revision;   /* increases whenever the run changes */
    size_t dir;         /* index of the board's folder that contains the run */
    char *name;         /* name that the page shows, a part of the path; owned */
    char *ranks_folder; /* path of the folder with rank files, relative to `dir`; owned */
    /* The file of metrics. If has_events is true, tail.path is the folder of TensorBoard's event
     * files, and no lines are read. */
    fsdp_tail tail;
    bool has_events;      /* the run has event files instead of a file of metrics */
    int64_t events_bytes; /* size of all event files at the last scan */
    int64_t read_bytes;   /* value of events_bytes when the event files were read last */

    fsdp_run_curve *curves; /* [n_curves]; owned */
    /* last_curve is the index of the curve that was found or added last. */
    size_t n_curves, last_curve;
    double step, epoch;    /* step and epoch of the newest line */
    double steps, seconds; /* number of steps, and the sum of their times */
    double first_seconds;  /* the time of the first step, which includes the warm-up */
    double tokens;         /* number of tokens in all steps */
    double validations, validation_s;
    /* Number of saves, and the time that training lost during the calls and afterwards. */
    double saves, call_s, held_s;
    double best_loss, best_step; /* smallest validation loss; NaN if there was no validation */
    double changed_at;           /* when the file of metrics changed last: seconds since 1970 */
    bool has_summary;            /* the run wrote that it has ended */
    double total_s; /* sum over the summaries of the run and of those it continues, in seconds */
    double peak_host_mib;                      /* from the newest summary; 0 without one */
    fsdp_run_save saved[FSDP_RUN_CHECKPOINTS]; /* [n_saved] in ascending order of time */
    size_t n_saved;

    fsdp_rank **ranks; /* [n_ranks] in ascending order of their numbers; owned */
    size_t n_ranks, cap_ranks;
    fsdp_json *description;   /* run.json; NULL if there is none; owned */
    int64_t description_time; /* when run.json changed last, in ns */
} fsdp_dashboard_run;

/* Create the run whose file of metrics, or folder of event files, is `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_run_create(size_t dir, const char *path, bool has_events,
                                                      const char *name, fsdp_dashboard_run **run);
void fsdp_dashboard_run_destroy(fsdp_dashboard_run *run); /* accepts NULL */
/* Find new files of ranks, and read run.json if it has changed. */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_run_look(fsdp_dashboard_run *run, int root);
/* Read new lines of the run and its ranks until `deadline_ns` (fsdp_clock_ns()). Set *more to true
 * if lines are left, otherwise to false. */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_run_read(fsdp_dashboard_run *run, int root,
                                                    int64_t deadline_ns, bool *more);
/* Read the event files in the folder `path` below `root`. Read a damaged file up to the damage. The
 * caller frees *curves with fsdp_metrics_curves_fini(). */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_read_events(int root, const char *path,
                                                       fsdp_metrics_curves *curves);
/* Replace the curves of a run with event files by `curves`. */
FSDP_MUST_CHECK fsdp_status fsdp_dashboard_run_set(fsdp_dashboard_run *run,
                                                   const fsdp_metrics_curves *curves);
