/* Inside of verify: one folder under comparison, and what its parts share. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/ckpt.h>

#include "src/base/json.h"
#include "src/train/model.h"
#include "src/train/verify.h"

typedef struct fsdp_verify_case {
    const char *path, *name; /* of the folder; name is its last part */
    fsdp_group *group;       /* NULL: a rank alone */
    fsdp_device *device;
    int rank, world_size;
    fsdp_json *tolerance; /* tolerance.json; NULL if there is none */
    fsdp_verify_report_fn *report;
    void *report_arg;
    fsdp_verify_counts counts;
} fsdp_verify_case;

/* --- reporting: on all ranks, with rank 0's numbers --- */
FSDP_PRINTF(5, 6)
void fsdp_verify_compared(fsdp_verify_case *c, double difference, double tolerance,
                          const char *measure, const char *quantity, ...);
FSDP_PRINTF(3, 4)
void fsdp_verify_skipped(fsdp_verify_case *c, const char *quantity, const char *reason, ...);

/* --- reading --- */
/* path/name; the caller's. */
char *fsdp_verify_path(const fsdp_verify_case *c, const char *name);
/* Number `key` of object `group` of tolerance.json's "suggested"; key NULL: of its only entry,
 * whose name goes to *measure. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_tolerance(const fsdp_verify_case *c, const char *group,
                                                  const char *key, double *tolerance,
                                                  const char **measure);
/* The int64 array [..., rows, width] `name` of `inputs`, at `index` of its `leading` first
 * dimensions; a copy, the caller's (fsdp_free). */
FSDP_MUST_CHECK fsdp_status fsdp_verify_ids(const fsdp_checkpoint_reader *inputs, const char *name,
                                            int leading, const int64_t *index, int64_t **ids,
                                            int64_t *rows, int64_t *width);
/* The batch of input_ids, attention_mask and labels at `index`. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_batch(const fsdp_checkpoint_reader *inputs,
                                              const fsdp_t5_config *config, int leading,
                                              const int64_t *index, fsdp_batch **batch);
/* Elements of an entry as floats, the caller's. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_floats(const fsdp_checkpoint_entry *entry, float **values);
/* The case's model, sharded over its ranks. options may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_model(const fsdp_verify_case *c,
                                                   const fsdp_fully_shard_options *options,
                                                   fsdp_model **model);

/* --- the parts: each handles one file of the folder --- */
FSDP_MUST_CHECK fsdp_status fsdp_verify_expected(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_config_form(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_buckets(fsdp_verify_case *c);
/* Was a trajectory or expected_bf16.json made by as many ranks as these? */
FSDP_MUST_CHECK fsdp_status fsdp_verify_is_of_this_world(const fsdp_verify_case *c,
                                                         const char *file, bool *yes);
/* `file` is trajectory_<name>_<mesh>.json, of this world size. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_trajectory(fsdp_verify_case *c, const char *file);
FSDP_MUST_CHECK fsdp_status fsdp_verify_bf16(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_shards(fsdp_verify_case *c);
/* `file` holds prompts and sequences. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_generation(fsdp_verify_case *c, const char *file);
