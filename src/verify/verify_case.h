/* Internals of verify: the folder that is compared, and functions that its parts share. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/hf.h>

#include "src/base/json.h"
#include "src/pretrained/model.h"
#include "src/verify/verify.h"

/* The mesh for hybrid trajectories. It is made once, because a group can be split only a few
 * times. */
typedef struct fsdp_verify_mesh {
    fsdp_device_mesh *mesh; /* two dimensions; NULL: not made yet */
} fsdp_verify_mesh;

typedef struct fsdp_verify_case {
    const char *path, *name; /* of the folder; name is its last component */
    fsdp_group *group;       /* NULL: a single rank */
    fsdp_device *device;
    int rank, world_size;
    fsdp_verify_mesh *hybrid; /* shared by all cases of a run */
    fsdp_json *tolerance;     /* tolerance.json; NULL if there is none */
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
/* path/name. Owned by the caller. */
char *fsdp_verify_path(const fsdp_verify_case *c, const char *name);
/* Files of the folder. *doc and *reader are owned by the caller. */
bool fsdp_verify_has_file(const fsdp_verify_case *c, const char *name);
FSDP_MUST_CHECK fsdp_status fsdp_verify_read_json(const fsdp_verify_case *c, const char *name,
                                                  fsdp_json **doc);
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_tensors(const fsdp_verify_case *c, const char *name,
                                                     fsdp_checkpoint_reader **reader);
/* The number `key` of object `group` in "suggested" of tolerance.json. With key NULL, the only
 * number of the group; *measure gets its name. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_tolerance(const fsdp_verify_case *c, const char *group,
                                                  const char *key, double *tolerance,
                                                  const char **measure);
/* Make a batch from the arrays' elements at `index`, which has `leading` numbers for the first
 * dimensions. The arrays are input_ids and those of attention_mask, labels, position_ids and
 * token_type_ids that the model's task has. FSDP_ERR_UNSUPPORTED for an array of another name. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_batch(const fsdp_checkpoint_reader *inputs,
                                              const fsdp_model_info *info, int leading,
                                              const int64_t *index, fsdp_batch **batch);
/* Elements of an entry as floats. Owned by the caller. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_floats(const fsdp_checkpoint_entry *entry, float **values);
/* Elements of the whole tensor, of which `local` may be a shard. Owned by the caller.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_full(fsdp_tensor *local, float **values);
/* True if the folder `dir`, relative to the case's folder, has a config.json. If not, `quantity` is
 * reported as not compared. */
bool fsdp_verify_has_model(fsdp_verify_case *c, const char *dir, const char *quantity);
/* Open the model in the folder `dir`, relative to the case's folder, sharded over the ranks.
 * options may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_model(const fsdp_verify_case *c, const char *dir,
                                                   const fsdp_fully_shard_options *options,
                                                   fsdp_model **model);
/* Set *largest to the larger of both. NaN counts as larger than any number. */
void fsdp_verify_grow(double *largest, double difference);
/* The largest |got - want| of n elements; NaN if a difference is NaN. */
double fsdp_verify_largest(const float *got, const float *want, int64_t n);

/* --- the parts: each handles one file of the folder --- */
FSDP_MUST_CHECK fsdp_status fsdp_verify_expected(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_packed(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_config_form(fsdp_verify_case *c);
/* `folder` has the model of model/ in other files. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_copy(fsdp_verify_case *c, const char *folder);
FSDP_MUST_CHECK fsdp_status fsdp_verify_buckets(fsdp_verify_case *c);
/* Sets its result to true if a trajectory or expected_bf16.json was made by as many ranks as
 * ours. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_is_of_this_world(const fsdp_verify_case *c,
                                                         const char *file, bool *yes);
/* `file` is trajectory_<name>_<mesh>.json for this world size. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_trajectory(fsdp_verify_case *c, const char *file);
FSDP_MUST_CHECK fsdp_status fsdp_verify_bf16(fsdp_verify_case *c);
/* `name` is dcp_step<N>, a checkpoint of model and optimizer. dcp_step<N>.json describes it. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_dcp(fsdp_verify_case *c, const char *name);
FSDP_MUST_CHECK fsdp_status fsdp_verify_shards(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optim(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_clip(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_schedules(fsdp_verify_case *c);
/* `file` has prompts and sequences. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_generation(fsdp_verify_case *c, const char *file);
