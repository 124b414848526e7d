/* Internals of verify: the folder that is compared, and functions that the parts of verify
 * share. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/hf.h>

#include "src/base/json.h"
#include "src/pretrained/model.h"
#include "src/verify/verify.h"

/* The mesh for hybrid trajectories. It is reused for later trajectories, because a group can be
 * split only a few times. */
typedef struct fsdp_verify_mesh {
    fsdp_device_mesh *mesh; /* two dimensions; NULL: not made yet */
} fsdp_verify_mesh;

typedef struct fsdp_verify_case {
    const char *path, *name; /* path of the folder; name is the last component of path */
    fsdp_group *group;       /* NULL: a single rank */
    fsdp_device *device;
    int rank, world_size;
    fsdp_verify_mesh *hybrid; /* shared by all cases of a run */
    fsdp_json *tolerance;     /* tolerance.json; NULL if there is none */
    fsdp_verify_report_fn *report;
    void *report_arg;
    fsdp_verify_counts counts;
} fsdp_verify_case;

/* --- reporting --- */
/* Report one quantity as compared, or as not compared. All ranks call these functions, but only
 * rank 0's numbers are reported. */
FSDP_PRINTF(5, 6)
void fsdp_verify_compared(fsdp_verify_case *c, double difference, double tolerance,
                          const char *measure, const char *quantity, ...);
FSDP_PRINTF(3, 4)
void fsdp_verify_skipped(fsdp_verify_case *c, const char *quantity, const char *reason, ...);

/* --- reading --- */
/* Return the path of the entry `name` of the folder. The caller owns the result. */
char *fsdp_verify_path(const fsdp_verify_case *c, const char *name);
/* Does the folder have the file `name`? The two functions after this one read the file as JSON and
 * open it as a file of tensors. The caller owns *doc and *reader. */
bool fsdp_verify_has_file(const fsdp_verify_case *c, const char *name);
FSDP_MUST_CHECK fsdp_status fsdp_verify_read_json(const fsdp_verify_case *c, const char *name,
                                                  fsdp_json **doc);
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_tensors(const fsdp_verify_case *c, const char *name,
                                                     fsdp_checkpoint_reader **reader);
/* Get a tolerance from tolerance.json: the number `key` in the object `group` of "suggested", or
 * the first number of that object if key is NULL. The key of the number also says how differences
 * are measured. If `measure` is not NULL, *measure is set to "absolute", "relative" or "of the
 * largest". */
FSDP_MUST_CHECK fsdp_status fsdp_verify_tolerance(const fsdp_verify_case *c, const char *group,
                                                  const char *key, double *tolerance,
                                                  const char **measure);
/* Make a batch from one part of each array. `index` has an index for each of the first `leading`
 * dimensions, and the other dimensions form the part. The arrays are input_ids and, if the file has
 * them, attention_mask, labels, position_ids, token_type_ids and document_ids. Returns
 * FSDP_ERR_UNSUPPORTED if the file has an array with another name. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_batch(const fsdp_checkpoint_reader *inputs,
                                              const fsdp_model_info *info, int leading,
                                              const int64_t *index, fsdp_batch **batch);
/* Get the elements of a float32 entry. The caller owns *values. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_floats(const fsdp_checkpoint_entry *entry, float **values);
/* Get the elements of a tensor as floats. If `local` is a shard, the whole tensor is gathered. The
 * caller owns *values. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_full(fsdp_tensor *local, float **values);
/* Does the folder `dir`, relative to the case's folder, have a config.json? If not, report
 * `quantity` as not compared. */
bool fsdp_verify_has_model(fsdp_verify_case *c, const char *dir, const char *quantity);
/* Open the model in the folder `dir`, relative to the case's folder, sharded over the ranks.
 * options may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_model(const fsdp_verify_case *c, const char *dir,
                                                   const fsdp_fully_shard_options *options,
                                                   fsdp_model **model);
/* Set *largest to the larger of *largest and `difference`. NaN counts as larger than any number. */
void fsdp_verify_max(double *largest, double difference);
/* Return the largest |got - want| of n elements; NaN if a difference is NaN. */
double fsdp_verify_largest(const float *got, const float *want, int64_t n);

/* --- comparing one entry of the folder --- */
FSDP_MUST_CHECK fsdp_status fsdp_verify_expected(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_packed(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_config_form(fsdp_verify_case *c);
/* Compare `folder` with model/. The two folders have the same model in different files. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_copy(fsdp_verify_case *c, const char *folder);
FSDP_MUST_CHECK fsdp_status fsdp_verify_buckets(fsdp_verify_case *c);
/* Set *yes to whether the run that made `file` had as many ranks as this run. The file is a
 * trajectory or expected_bf16.json. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_is_of_this_world(const fsdp_verify_case *c,
                                                         const char *file, bool *yes);
/* Compare `file`, a trajectory_<name>_<mesh>.json that was made with this world size. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_trajectory(fsdp_verify_case *c, const char *file);
FSDP_MUST_CHECK fsdp_status fsdp_verify_bf16(fsdp_verify_case *c);
/* Compare the checkpoint in the folder `name`, called dcp_step<N>, with its description in
 * dcp_step<N>.json, and compare training that resumes from it. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_dcp(fsdp_verify_case *c, const char *name);
FSDP_MUST_CHECK fsdp_status fsdp_verify_shards(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optim(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_clip(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_schedules(fsdp_verify_case *c);
/* Compare `file`, which has prompts and sequences. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_generation(fsdp_verify_case *c, const char *file);
