/* Declarations that all parts of `fsdp verify` share. Each part compares one kind of entry of a
 * case (verify.h). */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/hf.h>

#include "src/base/json.h"
#include "src/pretrained/model.h"
#include "src/verify/verify.h"

/* The device mesh of the last trajectory with replicas (hybrid sharding). Later trajectories with a
 * mesh of the same shape use it again, because a group can be split only a few times. */
typedef struct fsdp_verify_mesh {
    fsdp_device_mesh *mesh; /* [replicas, ranks per replica]; NULL: not created yet */
} fsdp_verify_mesh;

typedef struct fsdp_verify_case {
    /* path of the case's folder; `name` is the last component of `path` */
    const char *path, *name;
    fsdp_group *group; /* NULL: a single rank */
    fsdp_device *device;
    int rank, world_size;
    fsdp_verify_mesh *hybrid; /* shared by all cases of a run; borrowed */
    fsdp_json *tolerance;     /* tolerance.json; NULL if there is none */
    /* If the case has the folder adapter/: paths of the base model's folder and of the file with
     * inputs next to this folder. They are relative to the case's folder. NULL: the case has no
     * adapter. Owned. */
    char *base_model, *base_inputs;
    fsdp_verify_report_fn *report;
    void *report_arg;
    fsdp_verify_counts counts;
} fsdp_verify_case;

/* --- reporting --- */
/* Compare `difference` with `tolerance`, and report the quantity as passed or failed. `quantity` is
 * a printf format. All ranks call this, but only rank 0's numbers are reported. */
FSDP_PRINTF(5, 6)
void fsdp_verify_compared(fsdp_verify_case *c, double difference, double tolerance,
                          const char *measure, const char *quantity, ...);
/* Report the quantity as not compared. `reason` is a printf format. All ranks call this. */
FSDP_PRINTF(3, 4)
void fsdp_verify_skipped(fsdp_verify_case *c, const char *quantity, const char *reason, ...);

/* --- reading --- */
/* Return the path of the entry `name` of the case's folder. The caller owns the result. */
char *fsdp_verify_path(const fsdp_verify_case *c, const char *name);
/* Return true if the case's folder has the file `name`. */
bool fsdp_verify_has_file(const fsdp_verify_case *c, const char *name);
/* Read the file `name` of the case's folder as JSON. The caller owns *doc. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_read_json(const fsdp_verify_case *c, const char *name,
                                                  fsdp_json **doc);
/* Open the file `name` of the case's folder, which contains tensors. The caller owns *reader. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_tensors(const fsdp_verify_case *c, const char *name,
                                                     fsdp_checkpoint_reader **reader);
/* Get a tolerance from tolerance.json. In this file, the object "suggested" contains one object
 * for each group of tolerances. The object of a group contains numbers. *tolerance is set to the
 * number with the key `key` in the group `group`, or to the first number of the group if `key` is
 * NULL. The number's key also says how differences are measured. If `measure` is not NULL, *measure
 * is set to this kind of difference: "absolute", "relative" or "of the largest". */
FSDP_MUST_CHECK fsdp_status fsdp_verify_tolerance(const fsdp_verify_case *c, const char *group,
                                                  const char *key, double *tolerance,
                                                  const char **measure);
/* Make a batch from the arrays of a file: input_ids and, if the file has them, attention_mask,
 * labels, position_ids, token_type_ids and document_ids. If an array has more dimensions than a
 * batch, index[0 .. leading) selects the part of it to use, with one index for each of the first
 * `leading` dimensions. Returns FSDP_ERR_UNSUPPORTED if the file has an array with another name. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_batch(const fsdp_checkpoint_reader *inputs,
                                              const fsdp_model_info *info, int leading,
                                              const int64_t *index, fsdp_batch **batch);
/* Get the elements of a float32 entry. The caller owns *values. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_floats(const fsdp_checkpoint_entry *entry, float **values);
/* Get all elements of a tensor as floats. If `local` is one rank's shard, the whole tensor is
 * gathered. The caller owns *values. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_full(fsdp_tensor *local, float **values);
/* Return true if the folder `dir` has a config.json. If not, also report `quantity` as not
 * compared. `dir` is relative to the case's folder. */
bool fsdp_verify_has_model(fsdp_verify_case *c, const char *dir, const char *quantity);
/* Open the model in the folder `dir`, add the adapter in the folder `adapter` if that is not NULL,
 * and shard the model over the ranks. Both folders are relative to the case's folder. `options` may
 * be NULL, for defaults. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_open_model(const fsdp_verify_case *c, const char *dir,
                                                   const char *adapter,
                                                   const fsdp_fully_shard_options *options,
                                                   fsdp_model **model);
/* Return `name`, the name of a parameter in a file of the case, without the prefix that PEFT puts
 * before the names of a model with an adapter. */
const char *fsdp_verify_parameter_name(const char *name);
/* If the case has an adapter, find its base model: base_model_name_or_path is relative to the
 * folder adapter/. Sets c->base_model and c->base_inputs. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_find_base(fsdp_verify_case *c);
/* If `difference` is larger than *largest, set *largest to it. NaN counts as larger than any
 * number. */
void fsdp_verify_max(double *largest, double difference);
/* Return |got - want| / |want|, or |got| if `want` is 0. */
double fsdp_verify_relative(double got, double want);
/* Return the largest |got - want| of n elements; NaN if a difference is NaN. */
double fsdp_verify_largest(const float *got, const float *want, int64_t n);

/* --- comparing one entry of the case's folder --- */
FSDP_MUST_CHECK fsdp_status fsdp_verify_expected(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_packed(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_config_form(fsdp_verify_case *c);
/* Check that the model in `folder` is a copy of the model in model/, stored in other files: the
 * configurations must have the same meaning, and the weights must have the same bits. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_copy(fsdp_verify_case *c, const char *folder);
FSDP_MUST_CHECK fsdp_status fsdp_verify_buckets(fsdp_verify_case *c);
/* `file` is a trajectory or expected_bf16.json. Set *yes to true if PyTorch made it with the number
 * of ranks that this run has. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_is_of_this_world(const fsdp_verify_case *c,
                                                         const char *file, bool *yes);
/* Train as the file says, and compare the results with those in the file. `file` is the name of a
 * trajectory_<name>_<mesh>.json that was made with the number of ranks that this run has. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_trajectory(fsdp_verify_case *c, const char *file);
FSDP_MUST_CHECK fsdp_status fsdp_verify_bf16(fsdp_verify_case *c);
/* Compare a checkpoint, and compare training that resumes from it. `name` is the checkpoint's
 * folder, dcp_step<N>. The file dcp_step<N>.json has the expected content of the checkpoint. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_dcp(fsdp_verify_case *c, const char *name);
FSDP_MUST_CHECK fsdp_status fsdp_verify_shards(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_optim(fsdp_verify_case *c);
/* Compare AdamW with states in 8 bits, Muon and Schedule-Free AdamW with states.json and
 * states.safetensors. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_states(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_clip(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_schedules(fsdp_verify_case *c);
FSDP_MUST_CHECK fsdp_status fsdp_verify_float8(fsdp_verify_case *c);
/* Quantize the values in nf4.safetensors to NF4, read them back, and compare the results with those
 * in the file. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_nf4(fsdp_verify_case *c);
/* Generate from the prompts in `file`, and compare the result with the sequences in `file`. */
FSDP_MUST_CHECK fsdp_status fsdp_verify_generation(fsdp_verify_case *c, const char *file);
