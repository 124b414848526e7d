/* `fsdp verify`: compares numbers that this build computes with numbers that PyTorch computed.
 *
 * A case is a folder with a model, inputs, and PyTorch's results: logits, loss, hidden states,
 * gradients, training trajectories, generated ids (docs/verify.md). The golden folders, in
 * tests/golden, are the cases of this project. An entry of a case that this build cannot compare is
 * reported and counted as not compared. An entry that is for another number of ranks than this run
 * has is skipped: it is neither reported nor counted. */
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
    const char *folder;   /* last component of the path of the case's folder */
    const char *quantity; /* e.g. "grad.shared.weight" or "trajectory_step_w2: loss" */
    fsdp_verify_outcome outcome;
    /* The largest difference that was found, and the largest that is allowed. Both are NAN if the
     * quantity was not compared. */
    double difference, tolerance;
    /* What `difference` is. "absolute": the difference of two numbers. "relative": this difference,
     * divided by an expected number. "of the largest": this difference, divided by the largest
     * magnitude in a tensor. "differing" and "missing": the number of items that differ or are
     * missing. */
    const char *measure;
    const char *reason; /* why the quantity was not compared; NULL if it was compared */
} fsdp_verify_line;

/* A callback that gets the result of each quantity. It is called on rank 0 only. */
typedef void fsdp_verify_report_fn(const fsdp_verify_line *line, void *arg);

typedef struct fsdp_verify_counts {
    int64_t compared, failed, not_compared; /* `compared` includes `failed` */
} fsdp_verify_counts;

/* Compare the entries of the case in the folder `path`. If the folder is a collection of cases,
 * compare each case. Collective. The counts are added to *counts and are equal on all ranks. A
 * difference above the tolerance is counted as failed, but it is not an error. FSDP_ERR_FORMAT and
 * similar errors mean that a file could not be read. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_folder(const char *path, fsdp_group *group,
                                               fsdp_device *device, fsdp_verify_report_fn *report,
                                               void *arg, fsdp_verify_counts *counts);
