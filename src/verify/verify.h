/* `fsdp verify`: folders of numbers that PyTorch computed, compared with what this build computes.
 *
 * A folder holds a model, inputs, and what is expected of them: logits, loss, hidden states,
 * gradients, training trajectories, generated ids (docs/verify.md). Anything found there that this
 * build cannot compare is reported as such and counted, never passed over. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef enum fsdp_verify_outcome {
    FSDP_VERIFY_OK,
    FSDP_VERIFY_FAILED,
    FSDP_VERIFY_NOT_COMPARED
} fsdp_verify_outcome;

/* One quantity. Strings live during the report only. */
typedef struct fsdp_verify_line {
    const char *folder;   /* last name of its path */
    const char *quantity; /* "grad.shared.weight", "trajectory_step_w2: loss" */
    fsdp_verify_outcome outcome;
    double difference, tolerance; /* the largest; NAN if there is none */
    const char *measure;          /* "absolute", "relative", "of the largest", "differing" */
    const char *reason;           /* why it was not compared, else NULL */
} fsdp_verify_line;

/* Called on rank 0 alone. */
typedef void fsdp_verify_report_fn(const fsdp_verify_line *line, void *arg);

typedef struct fsdp_verify_counts {
    int64_t compared, failed, not_compared; /* failed ones are among the compared */
} fsdp_verify_counts;

/* Compare one folder, or each folder in it if it holds nothing to compare itself. Collective.
 * *counts (the same on every rank) are added to. A difference is no error: FSDP_ERR_FORMAT and the
 * like are for files that cannot be read. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_folder(const char *path, fsdp_group *group,
                                               fsdp_device *device, fsdp_verify_report_fn *report,
                                               void *arg, fsdp_verify_counts *counts);
