/* The part of `fsdp verify` that compares training trajectories, in float32 and with bfloat16
 * parameters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/verify/verify_training.h"

/* --- comparing --- */

/* Compare got[i] with element i of `array` for first <= i < n. Set *largest to the largest
 * difference. If `relative` is true, each difference is divided by the element of `array`. */
static fsdp_status largest_difference_from(fsdp_json_node array, const double *got, int64_t first,
                                           int64_t n, bool relative, double *largest)
{
    if ((int64_t)fsdp_json_len(array) != n)
        return fsdp_json_mismatch(array, NULL, "%lld numbers", (long long)n);
    *largest = 0;
    for (int64_t i = first; i < n; i++) {
        double want;
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(array, (size_t)i), NULL, &want));
        double d = fabs(got[i] - want);
        if (relative && want != 0)
            d /= fabs(want);
        fsdp_verify_max(largest, d);
    }
    return FSDP_OK;
}

static fsdp_status largest_difference(fsdp_json_node array, const double *got, int64_t n,
                                      bool relative, double *largest)
{
    return largest_difference_from(array, got, 0, n, relative, largest);
}

static fsdp_status compare_local_losses(fsdp_verify_case *c, fsdp_json_node root, const char *name,
                                        const fsdp_verify_curve *got, const fsdp_verify_recipe *r,
                                        double tolerance)
{
    fsdp_json_node rows;
    double largest = 0, d;
    FSDP_TRY(fsdp_json_opt_array(root, "local_loss", &rows));
    if (!rows.value)
        return FSDP_OK;
    if ((int64_t)fsdp_json_len(rows) != r->steps)
        return fsdp_json_mismatch(root, "local_loss", "%lld steps", (long long)r->steps);
    for (int64_t s = r->first_step; s < r->steps; s++) {
        FSDP_TRY(largest_difference(fsdp_json_at(rows, (size_t)s),
                                    got->local_loss + s * c->world_size, c->world_size, false, &d));
        fsdp_verify_max(&largest, d);
    }
    fsdp_verify_compared(c, largest, tolerance, "absolute", "%s: local_loss", name);
    return FSDP_OK;
}

static fsdp_status compare_trajectory(fsdp_verify_case *c, fsdp_json_node root, const char *name,
                                      const fsdp_verify_curve *got, const fsdp_verify_recipe *r)
{
    double loss, norm, d;
    fsdp_json_node array;
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "loss_absolute", &loss, NULL));
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "grad_norm_relative", &norm, NULL));
    FSDP_TRY(fsdp_json_get_array(root, "loss", &array));
    FSDP_TRY(largest_difference_from(array, got->loss, r->first_step, r->steps, false, &d));
    fsdp_verify_compared(c, d, loss, "absolute", "%s: loss", name);
    FSDP_TRY(compare_local_losses(c, root, name, got, r, loss));
    FSDP_TRY(fsdp_json_get_array(root, "grad_norm", &array));
    FSDP_TRY(largest_difference_from(array, got->grad_norm, r->first_step, r->steps, true, &d));
    fsdp_verify_compared(c, d, norm, "relative", "%s: grad_norm", name);
    FSDP_TRY(fsdp_json_get_array(root, "lr", &array));
    FSDP_TRY(largest_difference_from(array, got->lr, r->first_step, r->steps, false, &d));
    fsdp_verify_compared(c, d, 1e-12, "absolute", "%s: lr", name);
    return FSDP_OK;
}

/* --- trajectory files --- */

/* The device mesh of the ranks that made a file. The file has it as a text, "mesh": "w3" means 3
 * ranks, and "hsdp2x2" means 2 replicas of 2 ranks each. */
typedef struct mesh_shape {
    int ndim, size[2];
} mesh_shape;

static fsdp_status read_mesh(fsdp_json_node root, mesh_shape *shape)
{
    const char *text;
    char *end;
    *shape = (mesh_shape){.size = {1, 1}};
    FSDP_TRY(fsdp_json_get_str(root, "mesh", &text));
    for (const char *at = text + strcspn(text, "0123456789"); *at && shape->ndim < 2; at = end) {
        long size = strtol(at, &end, 10);
        if (end == at || size < 1 || size > INT16_MAX)
            break;
        shape->size[shape->ndim++] = (int)size;
        end += *end == 'x';
    }
    return shape->ndim ? FSDP_OK
                       : fsdp_json_mismatch(root, "mesh", "a number of ranks, as w2 or hsdp2x2");
}

fsdp_status fsdp_verify_is_of_this_world(const fsdp_verify_case *c, const char *file, bool *yes)
{
    fsdp_json *doc = NULL;
    mesh_shape shape;
    fsdp_status status = fsdp_verify_read_json(c, file, &doc);
    if (status == FSDP_OK)
        status = read_mesh(fsdp_json_root(doc), &shape);
    if (status == FSDP_OK)
        *yes = shape.size[0] * shape.size[1] == c->world_size;
    fsdp_json_destroy(doc);
    return status;
}

static bool any_resumed(fsdp_json_node trajectories)
{
    for (fsdp_json_node v = fsdp_json_first(trajectories); v.value; v = fsdp_json_next(v))
        if (fsdp_json_has(v, "resumed"))
            return true;
    return false;
}

/* Set *kept to true if final_params.safetensors has the final parameters of the trajectory `name`.
 * A case stores the final parameters of only one of its trajectories. This is the trajectory whose
 * entry in tolerance.json has the key "resumed". If no entry in the case's tolerance.json has this
 * key, the tolerance.json in the parent folder of the model is used instead. If no entry in that
 * file has the key either, the parameters are those of the trajectory cosine_w2. */
static fsdp_status is_kept(const fsdp_verify_case *c, const char *name, const char *model,
                           bool *kept)
{
    const char *short_name = name + strlen("trajectory_");
    char *dir = fsdp_verify_path(c, model), *parent = dir ? fsdp_path_parent(dir) : NULL;
    char *path = parent ? fsdp_path_join(parent, "tolerance.json") : NULL;
    fsdp_json *doc = NULL;
    fsdp_json_node all = {0};
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (c->tolerance)
        all = fsdp_json_find(fsdp_json_root(c->tolerance), "trajectories");
    if (status == FSDP_OK && !any_resumed(all) && fsdp_path_is_file(path)) {
        status = fsdp_json_read(path, &doc);
        if (status == FSDP_OK)
            all = fsdp_json_find(fsdp_json_root(doc), "trajectories");
    }
    if (status == FSDP_OK)
        *kept = any_resumed(all) ? fsdp_json_has(fsdp_json_find(all, short_name), "resumed")
                                 : strcmp(short_name, "cosine_w2") == 0;
    fsdp_json_destroy(doc);
    fsdp_free(path);
    fsdp_free(parent);
    fsdp_free(dir);
    return status;
}

/* final_adapter.safetensors has the final parameters of the trajectory with this number of ranks.
 */
enum {
    FINAL_ADAPTER_RANKS = 2
};

static fsdp_status compare_params(const fsdp_verify_training *t, bool kept)
{
    if (kept && fsdp_verify_has_file(t->c, "final_params.safetensors"))
        FSDP_TRY(fsdp_verify_final_params(t, "final_params.safetensors"));
    if (t->c->base_model && fsdp_verify_has_file(t->c, "final_adapter.safetensors") &&
        t->c->world_size == FINAL_ADAPTER_RANKS)
        FSDP_TRY(fsdp_verify_final_params(t, "final_adapter.safetensors"));
    return fsdp_verify_has_file(t->c, "params.json") ? fsdp_verify_changed_params(t) : FSDP_OK;
}

/* Set *mesh to a mesh of the given size: [replicas, ranks per replica]. *mesh is borrowed.
 * Collective. */
static fsdp_status hybrid_mesh(fsdp_verify_case *c, const int *size, const fsdp_device_mesh **mesh)
{
    fsdp_device_mesh **kept = &c->hybrid->mesh;
    if (*kept && fsdp_device_mesh_size(*kept, 0) != size[0]) {
        fsdp_device_mesh_destroy(*kept);
        *kept = NULL;
    }
    if (!*kept)
        FSDP_TRY(fsdp_device_mesh_create(c->group, 2, size, NULL, kept));
    *mesh = *kept;
    return FSDP_OK;
}

static fsdp_status verify_run(fsdp_verify_case *c, fsdp_json_node root, const char *name,
                              const fsdp_verify_recipe *r, bool kept)
{
    fsdp_verify_training t = {.c = c};
    fsdp_verify_curve got;
    fsdp_fully_shard_options shard = {0};
    mesh_shape shape;
    FSDP_TRY(read_mesh(root, &shape));
    if (shape.ndim == 2)
        FSDP_TRY(hybrid_mesh(c, shape.size, &shard.mesh));
    fsdp_status status = fsdp_verify_train(&t, r, &shard, &got);
    if (status == FSDP_OK)
        status = compare_trajectory(c, root, name, &got, r);
    if (status == FSDP_OK)
        status = compare_params(&t, kept);
    fsdp_verify_curve_free(&got);
    fsdp_verify_training_close(&t);
    return status;
}

/* Run a trajectory and compare it with the file. If a step has several micro-steps, the ranks
 * can communicate gradients either in every micro-step or once per step. Such a trajectory is run
 * twice, first with communication in every micro-step, and then with communication once per step.
 * PyTorch communicated once per step when it made the file, but both runs are compared with this
 * file. */
static fsdp_status verify_modes(fsdp_verify_case *c, fsdp_json_node root, const char *name,
                                const fsdp_verify_recipe *r, bool kept)
{
    char no_sync[160];
    fsdp_verify_recipe once = *r;
    FSDP_TRY(verify_run(c, root, name, r, kept));
    if (r->accumulation < 2)
        return FSDP_OK;
    once.sync_last_only = true;
    snprintf(no_sync, sizeof no_sync, "%s, communicated once", name);
    return verify_run(c, root, no_sync, &once, kept);
}

fsdp_status fsdp_verify_trajectory(fsdp_verify_case *c, const char *file)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".json")), file);
    fsdp_json *doc = NULL;
    fsdp_verify_recipe r = {0};
    bool kept = false;
    fsdp_status status = fsdp_verify_read_json(c, file, &doc);
    if (status == FSDP_OK)
        status = fsdp_verify_recipe_read_file(fsdp_json_root(doc), &r);
    if (status == FSDP_OK)
        status = is_kept(c, name, r.model, &kept);
    status = fsdp_agree(c->group, status);
    if (status == FSDP_OK && fsdp_verify_has_model(c, r.model, file))
        status = verify_modes(c, fsdp_json_root(doc), name, &r, kept);
    fsdp_error_context(status, "%s", file);
    fsdp_json_destroy(doc);
    return status;
}

/* --- resuming from a checkpoint --- */

/* Compare the losses of two trajectories in the first `steps` steps. Set *agree to true if each
 * pair of losses differs by no more than the tolerance. `here` is the trajectory for the number of
 * ranks that this run has. `there` is the trajectory for two ranks. */
static fsdp_status do_curves_agree(const fsdp_verify_case *c, fsdp_json_node here,
                                   fsdp_json_node there, int64_t steps, bool *agree)
{
    double tolerance;
    fsdp_json_node a, b;
    *agree = true;
    FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", "loss_absolute", &tolerance, NULL));
    FSDP_TRY(fsdp_json_get_array(here, "loss", &a));
    FSDP_TRY(fsdp_json_get_array(there, "loss", &b));
    for (int64_t s = 0; s < steps; s++) {
        double x, y;
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(a, (size_t)s), NULL, &x));
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(b, (size_t)s), NULL, &y));
        if (!(fabs(x - y) <= tolerance))
            *agree = false;
    }
    return FSDP_OK;
}

/* Note [Splits]. A micro-batch is the batch of one rank in one micro-step. A split says how many
 * labels each micro-batch of one step has. The loss of a micro-batch is the mean over its own
 * labels, and the gradient of a step is the mean over its micro-batches. So a label has the weight
 * 1 / (number of micro-batches * number of labels in its micro-batch). Two runs with different
 * numbers of ranks have the same gradients only if each label has the same weight in both runs. */
typedef struct split {
    int64_t *labels; /* [micro_batches] */
    int64_t micro_batches;
} split;

static fsdp_status read_split(const fsdp_checkpoint_reader *inputs, const fsdp_model_info *info,
                              int64_t step, int64_t accumulation, split *s)
{
    const int64_t ranks = s->micro_batches / accumulation;
    for (int64_t i = 0; i < s->micro_batches; i++) {
        const int64_t index[] = {step * accumulation + i / ranks, i % ranks};
        fsdp_batch *batch;
        FSDP_TRY(fsdp_verify_batch(inputs, info, 2, index, &batch));
        s->labels[i] = batch->label_tokens;
        fsdp_batch_release(batch);
    }
    return FSDP_OK;
}

/* Return how many labels of a step have the weight 1 / divisor (Note [Splits]). */
static int64_t count_labels(const split *s, int64_t divisor)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s->micro_batches; i++)
        count += s->micro_batches * s->labels[i] == divisor ? s->labels[i] : 0;
    return count;
}

static bool has_parts_of(const split *a, const split *b)
{
    for (int64_t i = 0; i < b->micro_batches; i++) {
        const int64_t divisor = b->micro_batches * b->labels[i];
        if (count_labels(a, divisor) != count_labels(b, divisor))
            return false;
    }
    return true;
}

/* Compare the weights that two runs give to their labels (Note [Splits]). Run k, which is 0 or 1,
 * follows the recipe r[k] on ranks[k] ranks. Only the first `steps` steps are compared. Set *found
 * to the first step in which the weights differ, or to -1 if there is no such step. */
static fsdp_status find_other_parts(const fsdp_verify_case *c, const fsdp_model_info *info,
                                    const fsdp_verify_recipe *const r[2], const int ranks[2],
                                    int64_t steps, int64_t *found)
{
    fsdp_checkpoint_reader *inputs[2] = {NULL};
    split s[2] = {{0}};
    fsdp_status status = FSDP_OK;
    *found = -1;
    for (int k = 0; k < 2 && status == FSDP_OK; k++) {
        s[k].micro_batches = ranks[k] * r[k]->accumulation;
        s[k].labels = fsdp_calloc((size_t)s[k].micro_batches, sizeof *s[k].labels);
        status =
            s[k].labels ? fsdp_verify_open_tensors(c, r[k]->inputs, &inputs[k]) : FSDP_ERR_NOMEM;
    }
    for (int64_t step = 0; step < steps && status == FSDP_OK && *found < 0; step++) {
        for (int k = 0; k < 2 && status == FSDP_OK; k++)
            status = read_split(inputs[k], info, step, r[k]->accumulation, &s[k]);
        if (status == FSDP_OK && !(has_parts_of(&s[0], &s[1]) && has_parts_of(&s[1], &s[0])))
            *found = step;
    }
    for (int k = 0; k < 2; k++) {
        fsdp_checkpoint_close(inputs[k]);
        fsdp_free(s[k].labels);
    }
    return status;
}

static fsdp_status read_info(const fsdp_verify_case *c, const char *model, fsdp_model_info *info)
{
    fsdp_model_config config;
    char *path = fsdp_verify_path(c, model);
    fsdp_status status = path ? fsdp_model_config_read(path, &config) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    if (status == FSDP_OK)
        *info = fsdp_model_config_info(&config);
    return status;
}

/* There are two runs of PyTorch. The first one had two ranks and saved the checkpoint; its losses
 * are in `there`. The second one had the number of ranks that this run has, and did not resume; its
 * losses are in `here`. This run resumes from the checkpoint of the first one, and is to be
 * compared with the second one. If PyTorch itself would not get the losses in `here` by resuming
 * from that checkpoint, set `reason` to the cause. Otherwise `reason` stays empty. */
static fsdp_status compare_worlds(const fsdp_verify_case *c, fsdp_json_node here,
                                  fsdp_json_node there, const fsdp_verify_recipe *r, char *reason,
                                  size_t size)
{
    fsdp_verify_recipe made = {0};
    fsdp_model_info info;
    int64_t step;
    bool agree;
    FSDP_TRY(fsdp_verify_recipe_read_file(there, &made));
    FSDP_TRY(read_info(c, r->model, &info));
    FSDP_TRY(find_other_parts(c, &info, (const fsdp_verify_recipe *const[]){r, &made},
                              (const int[]){c->world_size, 2}, r->first_step, &step));
    FSDP_TRY(do_curves_agree(c, here, there, r->first_step, &agree));
    if (step >= 0)
        snprintf(
            reason, size,
            "step %lld: labels have other weights in the mean of means than on the 2 ranks that "
            "saved it, so PyTorch continues with other numbers, too",
            (long long)step + 1);
    else if (!agree)
        snprintf(reason, size, "losses differ from those of the 2 ranks that saved it");
    return FSDP_OK;
}

/* Find out, with compare_worlds(), whether this run, which resumes from the checkpoint, can be
 * compared with the trajectory `here`. `here` was read from `file`. If the two cannot be compared,
 * set `reason` to the cause. Otherwise `reason` stays empty. */
static fsdp_status check_resumable(const fsdp_verify_case *c, const char *file,
                                   const fsdp_verify_recipe *r, fsdp_json *here, char *reason,
                                   size_t size)
{
    static const char source[] = "trajectory_cosine_w2.json";
    fsdp_json *there;
    if (!fsdp_verify_has_file(c, source) || strcmp(file, source) == 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_verify_read_json(c, source, &there));
    fsdp_status status =
        compare_worlds(c, fsdp_json_root(here), fsdp_json_root(there), r, reason, size);
    fsdp_json_destroy(there);
    return status;
}

static fsdp_status read_resumed(fsdp_verify_case *c, const char *file, fsdp_json **doc,
                                fsdp_verify_recipe *r, char *reason, size_t size, bool *kept)
{
    char name[64];
    snprintf(name, sizeof name, "trajectory_cosine_w%d", c->world_size);
    FSDP_TRY(fsdp_verify_read_json(c, file, doc));
    FSDP_TRY(fsdp_verify_recipe_read_file(fsdp_json_root(*doc), r));
    if (r->first_step > r->steps)
        return fsdp_json_mismatch(fsdp_json_root(*doc), "loss", "as many steps as the checkpoint");
    FSDP_TRY(is_kept(c, name, r->model, kept));
    return check_resumable(c, file, r, *doc, reason, size);
}

fsdp_status fsdp_verify_resumed(fsdp_verify_case *c, const char *checkpoint, int64_t step)
{
    char file[64], name[128], reason[256] = "";
    fsdp_json *doc = NULL;
    bool kept = false;
    fsdp_verify_recipe r = {.checkpoint = checkpoint, .first_step = step};
    snprintf(file, sizeof file, "trajectory_cosine_w%d.json", c->world_size);
    snprintf(name, sizeof name, "%s: continued", checkpoint);
    /* without a cosine trajectory for this number of ranks, there is nothing to compare */
    if (!fsdp_verify_has_file(c, file))
        return FSDP_OK;
    fsdp_status status =
        fsdp_agree(c->group, read_resumed(c, file, &doc, &r, reason, sizeof reason, &kept));
    if (status == FSDP_OK && *reason)
        fsdp_verify_skipped(c, name, "%s", reason);
    else if (status == FSDP_OK)
        status = verify_run(c, fsdp_json_root(doc), name, &r, kept);
    fsdp_json_destroy(doc);
    return status;
}

/* --- expected_bf16.json --- */

/* A precision in which the model is run: bfloat16 or float32. expected_bf16.json has results for
 * both, in spite of its name. */
typedef struct precision {
    const char *key; /* "bf16" or "fp32" */
    fsdp_fully_shard_options shard;
} precision;

/* Compare the losses and gradient norms in `got` with `values`, which is {"loss": {"bf16": [...],
 * "fp32": [...]}, "grad_norm": {"bf16": [...], "fp32": [...]}}. For bf16, the tolerances are in
 * `tolerances`, which is {"loss": ..., "grad_norm": ...}. For fp32, the tolerances are those of
 * trajectories, and `tolerances` is not used. */
static fsdp_status compare_precision(fsdp_verify_case *c, const precision *p, fsdp_json_node values,
                                     fsdp_json_node tolerances, const char *name,
                                     const fsdp_verify_curve *got, int64_t steps)
{
    static const char *const keys[] = {"loss", "grad_norm"};
    static const char *const fp32_keys[] = {"loss_absolute", "grad_norm_relative"};
    const bool bf16 = p->shard.mp_policy.param_dtype == FSDP_DTYPE_BF16;
    for (int i = 0; i < 2; i++) {
        fsdp_json_node both, array;
        double tolerance, d;
        bool relative = i == 1 && !bf16;
        if (bf16)
            FSDP_TRY(fsdp_json_get_f64(tolerances, keys[i], &tolerance));
        else
            FSDP_TRY(fsdp_verify_tolerance(c, "trajectory", fp32_keys[i], &tolerance, NULL));
        FSDP_TRY(fsdp_json_get_object(values, keys[i], &both));
        FSDP_TRY(fsdp_json_get_array(both, p->key, &array));
        FSDP_TRY(largest_difference(array, i ? got->grad_norm : got->loss, steps, relative, &d));
        fsdp_verify_compared(c, d, tolerance, relative ? "relative" : "absolute", "%s %s: %s",
                             p->key, name, keys[i]);
    }
    return FSDP_OK;
}

/* Compare the loss and the gradient norm of the first micro-batch, computed in bfloat16, with the
 * numbers "loss" and "grad_norm" of `root`. */
static fsdp_status compare_first(fsdp_verify_case *c, fsdp_json_node root,
                                 fsdp_json_node tolerances, const fsdp_verify_curve *got)
{
    static const char *const keys[] = {"loss", "grad_norm"};
    for (int i = 0; i < 2; i++) {
        double want, tolerance;
        FSDP_TRY(fsdp_json_get_f64(root, keys[i], &want));
        FSDP_TRY(fsdp_json_get_f64(tolerances, keys[i], &tolerance));
        fsdp_verify_compared(c, fabs((i ? got->grad_norm : got->loss)[0] - want), tolerance,
                             "absolute", "bf16: %s", keys[i]);
    }
    return FSDP_OK;
}

static fsdp_status run_precision(fsdp_verify_case *c, const precision *p,
                                 const fsdp_verify_recipe *r, fsdp_verify_curve *got)
{
    fsdp_verify_training t = {.c = c};
    fsdp_status status = fsdp_verify_train(&t, r, &p->shard, got);
    fsdp_verify_training_close(&t);
    return status;
}

/* Compute the loss and the gradient norm of each micro-batch with the model's initial weights, and
 * compare them with the file. The weights are never updated. */
static fsdp_status verify_still(fsdp_verify_case *c, const precision *p, fsdp_json_node root,
                                const char *inputs)
{
    fsdp_json_node values, tolerances, both, array;
    fsdp_verify_recipe r = {.model = "model",
                            .inputs = inputs,
                            .accumulation = 1,
                            .no_steps = true,
                            .optimizer = {.kind = FSDP_VERIFY_SGD, .sgd = fsdp_sgd_defaults()}};
    FSDP_TRY(fsdp_json_get_object(root, "all_micro_batches", &values));
    FSDP_TRY(fsdp_json_get_object(root, "tolerance", &tolerances));
    FSDP_TRY(fsdp_json_get_object(values, "loss", &both));
    FSDP_TRY(fsdp_json_get_array(both, p->key, &array));
    r.steps = (int64_t)fsdp_json_len(array);
    fsdp_verify_curve got;
    fsdp_status status = run_precision(c, p, &r, &got);
    if (status == FSDP_OK && r.steps > 0 && p->shard.mp_policy.param_dtype == FSDP_DTYPE_BF16)
        status = compare_first(c, root, tolerances, &got);
    if (status == FSDP_OK)
        status = compare_precision(c, p, values, tolerances, "all_micro_batches", &got, r.steps);
    fsdp_verify_curve_free(&got);
    return status;
}

/* Train, and compare the losses and gradient norms of all steps. The file has the learning rate of
 * each step. Its other keys and their defaults are those of a trajectory file. */
static fsdp_status verify_moving(fsdp_verify_case *c, const precision *p, fsdp_json_node root,
                                 const char *inputs)
{
    fsdp_json_node values, tolerances;
    const char *name;
    char quantity[160];
    fsdp_verify_recipe r = {.inputs = inputs};
    FSDP_TRY(fsdp_json_get_object(root, "trajectory", &values));
    FSDP_TRY(fsdp_json_get_object(values, "tolerance", &tolerances));
    FSDP_TRY(fsdp_json_get_str(values, "name", &name));
    FSDP_TRY(fsdp_verify_recipe_read(values, &r));
    FSDP_TRY(fsdp_json_get_array(values, "lr", &r.rates));
    r.steps = (int64_t)fsdp_json_len(r.rates);
    snprintf(quantity, sizeof quantity, "trajectory_%s", name);
    fsdp_verify_curve got;
    fsdp_status status = run_precision(c, p, &r, &got);
    if (status == FSDP_OK)
        status = compare_precision(c, p, values, tolerances, quantity, &got, r.steps);
    fsdp_verify_curve_free(&got);
    return status;
}

fsdp_status fsdp_verify_bf16(fsdp_verify_case *c)
{
    static const precision both[] = {
        {.key = "bf16", .shard.mp_policy.param_dtype = FSDP_DTYPE_BF16}, {.key = "fp32"}};
    fsdp_json *doc = NULL;
    const char *inputs = NULL;
    fsdp_status status = fsdp_verify_read_json(c, "expected_bf16.json", &doc);
    fsdp_json_node root = status == FSDP_OK ? fsdp_json_root(doc) : (fsdp_json_node){0};
    if (status == FSDP_OK)
        status = fsdp_json_get_str(root, "inputs", &inputs);
    status = fsdp_agree(c->group, status);
    for (size_t i = 0; i < FSDP_LENGTH(both) && status == FSDP_OK; i++) {
        status = verify_still(c, &both[i], root, inputs);
        if (status == FSDP_OK)
            status = verify_moving(c, &both[i], root, inputs);
    }
    fsdp_error_context(status, "expected_bf16.json");
    fsdp_json_destroy(doc);
    return status;
}
