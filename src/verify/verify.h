/* `fsdp verify`: compares numbers that PyTorch computed, which are stored in folders, with the
 * numbers that this build computes.
 *
 * A folder has a model, inputs, and the expected results: logits, loss, hidden states, gradients,
 * training trajectories, generated ids (docs/verify.md). Entries that this build cannot compare are
 * always reported and counted. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef enum fsdp_verify_outcome {
    FSDP_VERIFY_OK,
    FSDP_VERIFY_FAILED,
    FSDP_VERIFY_NOT_COMPARED
} fsdp_verify_outcome;

/* The result of one quantity. Strings are valid only during the report. */
typedef struct fsdp_verify_line {
    const char *folder;   /* last component of the folder's path */
    const char *quantity; /* "grad.shared.weight", "trajectory_step_w2: loss" */
    fsdp_verify_outcome outcome;
    double difference, tolerance; /* the largest difference that was found, and the allowed one; NAN
                                     if not compared */
    const char *measure; /* how differences are measured ("absolute", "relative", or "of the
                            largest": relative to the largest magnitude), or what is counted
                            ("differing", "missing") */
    const char *reason;  /* why the quantity was not compared; NULL if it was compared */
} fsdp_verify_line;

/* Called on rank 0 only. */
typedef void fsdp_verify_report_fn(const fsdp_verify_line *line, void *arg);

typedef struct fsdp_verify_counts {
    int64_t compared, failed, not_compared; /* failed quantities count as compared too */
} fsdp_verify_counts;

/* Compare the entries of the folder `path`. If it only contains other folders, compare each of
 * these instead. Collective. The counts are added to *counts and are equal on all ranks. A
 * difference above the tolerance is counted as failed, but it is not an error. FSDP_ERR_FORMAT and
 * similar errors mean that a file could not be read. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_folder(const char *path, fsdp_group *group,
                                               fsdp_device *device, fsdp_verify_report_fn *report,
                                               void *arg, fsdp_verify_counts *counts);
