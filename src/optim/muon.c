/* Muon (Jordan et al. 2024), as torch.optim.Muon computes it. Muon is for the matrices in the
 * blocks of a model. All other parameters belong to groups with use_adamw, which AdamW updates.
 *
 * Muon's update of a matrix is its momentum, made orthogonal by a Newton-Schulz iteration
 * (newton_schulz.h), which needs the whole matrix. A group of W ranks processes W consecutive
 * matrices at a time. Each rank gathers one of these matrices, computes its update and sends the
 * update to all ranks of the group. So the work is divided by W, and a rank holds one or two whole
 * matrices in bfloat16 at a time. The result depends only on the whole matrix, so it has the same
 * bits at any world size. */
#include <math.h>
#include <string.h>

#include <fsdp/comm.h>
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/optim/newton_schulz.h"
#include "src/optim/optimizer.h"
#include "src/tensor/host_copy.h"
#include "src/tensor/tensor.h"

enum { /* indices of state_names */
    MOMENTUM_BUFFER,
    EXP_AVG,
    EXP_AVG_SQ
};
static const char *const state_names[FSDP_MAX_OPTIMIZER_STATE] = {"momentum_buffer", "exp_avg",
                                                                  "exp_avg_sq"};

/* --- options --- */

fsdp_muon_options fsdp_muon_defaults(void)
{
    return (fsdp_muon_options){.lr = 1e-3,
                               .weight_decay = 0.1,
                               .momentum = 0.95,
                               .nesterov = true,
                               .ns_coefficients = {3.4445, -4.7750, 2.0315},
                               .eps = 1e-7,
                               .ns_steps = 5,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .adamw_eps = 1e-8};
}

static const char *name(const fsdp_optimizer_options *options)
{
    (void)options;
    return "muon";
}

static fsdp_status check_options(const fsdp_optimizer_options *options)
{
    const fsdp_muon_options *o = &options->muon;
    FSDP_TRY(fsdp_optimizer_check_range("muon", "lr", o->lr, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("muon", "weight_decay", o->weight_decay, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("muon", "momentum", o->momentum, 1.0));
    FSDP_TRY(fsdp_optimizer_check_range("muon", "eps", o->eps, (double)INFINITY));
    FSDP_TRY(fsdp_optimizer_check_range("muon", "ns_steps", o->ns_steps, 100.0));
    FSDP_TRY(fsdp_optimizer_check_range("muon", "beta1", o->beta1, 1.0));
    FSDP_TRY(fsdp_optimizer_check_range("muon", "beta2", o->beta2, 1.0));
    for (int k = 0; k < 3; k++)
        if (!isfinite(o->ns_coefficients[k]) || o->ns_coefficients[2] == 0.0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "muon: ns_coefficients are %g, %g, %g: they must be finite, and the "
                              "last one must not be 0",
                              o->ns_coefficients[0], o->ns_coefficients[1], o->ns_coefficients[2]);
    return fsdp_optimizer_check_range("muon", "adamw_eps", o->adamw_eps, (double)INFINITY);
}

static fsdp_status check_parameter(const fsdp_optimizer_options *options,
                                   const fsdp_named_parameter *p)
{
    const int ndim = fsdp_parameter_ndim(p->parameter);
    if (options->muon.use_adamw || ndim == 2 || !fsdp_parameter_requires_grad(p->parameter))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "parameter %s has %d dimension%s: Muon is for matrices, so it belongs to a "
                      "group with use_adamw (fsdp_muon_is_for() finds them)",
                      p->name, ndim, ndim == 1 ? "" : "s");
}

static fsdp_state_shape state_shape(const fsdp_optimizer_options *options, const fsdp_tensor *local,
                                    int k)
{
    (void)local;
    return (k != MOMENTUM_BUFFER) == options->muon.use_adamw ? FSDP_STATE_SAME : FSDP_STATE_NONE;
}

static double *lr(fsdp_optimizer_options *options)
{
    return &options->muon.lr;
}

/* --- a step --- */

typedef struct part {
    const fsdp_step_item *item;
    const fsdp_muon_options *options;
    fsdp_group *group;   /* NULL: this rank has the whole matrix */
    int64_t rows, cols;  /* the size of the whole matrix */
    int64_t padded;      /* number of rows that each rank sends; a rank with fewer rows sends zeros
                            after them */
    fsdp_tensor *update; /* this rank's rows of the orthogonal matrix, bfloat16; NULL: AdamW updates
                            the parameter */
} part;

typedef struct work {
    fsdp_device *device;
    float grad_scale;
    part *parts;
    size_t n;
    /* float32, as large as the largest shard. scaled: the gradient times a factor; later the
     * update. ahead: used only with nesterov: momentum * momentum_buffer + scaled */
    fsdp_tensor *scaled, *ahead;
    /* bfloat16. shard: a padded shard; mine: the whole matrix that this rank computes; other: any
     * other whole matrix */
    fsdp_tensor *shard, *mine, *other;
    /* Copies of shard, mine and other in host memory, in which ranks exchange matrices. */
    fsdp_host_copy host_shard, host_mine, host_other;
    fsdp_newton_schulz iteration;
} work;

static void *at(const fsdp_tensor *t)
{
    return fsdp_tensor_ptr(t);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static fsdp_status create(const work *w, fsdp_dtype dtype, int64_t n, fsdp_tensor **t)
{
    return fsdp_tensor_create(w->device, dtype, 1, &n, FSDP_TAG_OPTIM, t);
}

/* Describe the parameters, and allocate the memory of the step. */
static fsdp_status open_work(const fsdp_step_item *items, size_t n, work *w)
{
    int64_t local = 0, padded = 0, whole = 0, side = 0, rows = 0;
    w->device = items[0].local->storage->device;
    w->parts = fsdp_calloc(n, sizeof *w->parts);
    if (!w->parts)
        return FSDP_ERR_NOMEM;
    w->n = n;
    for (size_t i = 0; i < n; i++) {
        part *p = &w->parts[i];
        const int64_t numel = fsdp_tensor_numel(items[i].local);
        *p = (part){.item = &items[i], .options = &items[i].options->muon};
        local = larger(local, numel);
        if (p->options->use_adamw)
            continue;
        p->group = fsdp_parameter_group(items[i].parameter);
        const int ranks = p->group ? fsdp_group_world_size(p->group) : 1;
        p->rows = fsdp_parameter_shape(items[i].parameter)[0];
        p->cols = fsdp_parameter_shape(items[i].parameter)[1];
        p->padded = (p->rows + ranks - 1) / ranks;
        padded = larger(padded, p->padded * p->cols);
        whole = larger(whole, p->padded * ranks * p->cols);
        side = larger(side, p->rows < p->cols ? p->rows : p->cols);
        rows = larger(rows, p->rows);
        FSDP_TRY(create(w, FSDP_DTYPE_BF16, numel, &p->update));
    }
    FSDP_TRY(create(w, FSDP_DTYPE_F32, local, &w->scaled));
    FSDP_TRY(create(w, FSDP_DTYPE_F32, local, &w->ahead));
    FSDP_TRY(create(w, FSDP_DTYPE_BF16, padded, &w->shard));
    FSDP_TRY(create(w, FSDP_DTYPE_BF16, whole, &w->mine));
    FSDP_TRY(create(w, FSDP_DTYPE_BF16, whole, &w->other));
    FSDP_TRY(fsdp_host_copy_create(&w->host_shard, w->shard));
    FSDP_TRY(fsdp_host_copy_create(&w->host_mine, w->mine));
    FSDP_TRY(fsdp_host_copy_create(&w->host_other, w->other));
    return fsdp_newton_schulz_open(w->device, whole, side, rows, &w->iteration);
}

static void end(void *arg)
{
    work *w = arg;
    if (!w)
        return;
    for (size_t i = 0; w->parts && i < w->n; i++)
        fsdp_tensor_release(w->parts[i].update);
    fsdp_host_copy_destroy(&w->host_shard);
    fsdp_host_copy_destroy(&w->host_mine);
    fsdp_host_copy_destroy(&w->host_other);
    fsdp_tensor *const tensors[] = {w->scaled, w->ahead, w->shard, w->mine, w->other};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        fsdp_tensor_release(tensors[i]);
    fsdp_newton_schulz_close(&w->iteration);
    fsdp_free(w->parts);
    fsdp_free(w);
}

/* Update the momentum. Then store in w->shard this rank's rows of the matrix that is to be made
 * orthogonal. */
static fsdp_status advance_momentum(const work *w, const part *p)
{
    const fsdp_kernels *k = w->device->kernels;
    fsdp_kernel_context *c = w->device->context;
    const int64_t n = fsdp_tensor_numel(p->item->local);
    const float momentum = (float)p->options->momentum;
    const float rest = w->grad_scale * (float)(1.0 - p->options->momentum);
    fsdp_device_memset(w->device, at(w->shard), 0,
                       (size_t)(p->padded * p->cols) * sizeof(uint16_t));
    if (!n)
        return FSDP_OK;
    FSDP_TRY(fsdp_step_item_begin_state(p->item, 1u << MOMENTUM_BUFFER));
    float *buffer = at(p->item->state[MOMENTUM_BUFFER]);
    k->scale(c, at(w->scaled), at(p->item->grad), rest, FSDP_DTYPE_F32, n);
    k->scale(c, buffer, buffer, momentum, FSDP_DTYPE_F32, n);
    k->add(c, buffer, buffer, at(w->scaled), FSDP_DTYPE_F32, n);
    if (p->options->nesterov) {
        k->scale(c, at(w->ahead), buffer, momentum, FSDP_DTYPE_F32, n);
        k->add(c, at(w->ahead), at(w->ahead), at(w->scaled), FSDP_DTYPE_F32, n);
    }
    k->cast(c, at(w->shard), FSDP_DTYPE_BF16, p->options->nesterov ? at(w->ahead) : buffer,
            FSDP_DTYPE_F32, n);
    fsdp_step_item_end_state(p->item, 1u << MOMENTUM_BUFFER);
    return FSDP_OK;
}

static void copy(const work *w, void *to, const void *from, size_t bytes)
{
    w->device->kernels->copy(w->device->context, to, from, bytes);
}

/* Each rank has its rows of a matrix in w->shard. Gather the whole matrix from all ranks. `whole`
 * is the host copy of the tensor that gets the matrix. */
static fsdp_status gather(const work *w, const part *p, const fsdp_host_copy *whole)
{
    const size_t bytes = (size_t)(p->padded * p->cols) * sizeof(uint16_t);
    if (!p->group) {
        copy(w, at(whole->tensor), at(w->shard), bytes);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_host_copy_read_part(&w->host_shard, 0, bytes));
    FSDP_TRY(fsdp_all_gather(p->group, w->host_shard.data, bytes, whole->data));
    fsdp_host_copy_write_part(whole, 0, bytes * (size_t)fsdp_group_world_size(p->group));
    return FSDP_OK;
}

/* Send a whole matrix from rank `from` to all ranks. */
static fsdp_status send_whole(const part *p, const fsdp_host_copy *whole, int from)
{
    const size_t bytes = (size_t)(p->rows * p->cols) * sizeof(uint16_t);
    if (!p->group)
        return FSDP_OK;
    if (fsdp_group_rank(p->group) == from)
        FSDP_TRY(fsdp_host_copy_read_part(whole, 0, bytes));
    FSDP_TRY(fsdp_broadcast(p->group, whole->data, bytes, from));
    if (fsdp_group_rank(p->group) != from)
        fsdp_host_copy_write_part(whole, 0, bytes);
    return FSDP_OK;
}

/* Keep this rank's rows of a whole matrix. */
static void keep_rows(const work *w, const part *p, const fsdp_host_copy *whole)
{
    int64_t begin, stop;
    fsdp_parameter_rows(p->item->parameter, &begin, &stop);
    copy(w, at(p->update), (const uint16_t *)at(whole->tensor) + begin * p->cols,
         (size_t)((stop - begin) * p->cols) * sizeof(uint16_t));
}

/* Compute the updates of n matrices: entry i of `of` is the index of a matrix in w->parts. All of
 * these matrices have the same group, and n is at most the number of ranks of this group. */
static fsdp_status update_matrices(const work *w, const size_t *of, int n)
{
    fsdp_group *group = w->parts[of[0]].group;
    const int rank = group ? fsdp_group_rank(group) : 0;
    for (int i = 0; i < n; i++) {
        const part *p = &w->parts[of[i]];
        FSDP_TRY(advance_momentum(w, p));
        FSDP_TRY(gather(w, p, i == rank ? &w->host_mine : &w->host_other));
    }
    if (rank < n) {
        const part *p = &w->parts[of[rank]];
        FSDP_TRY(fsdp_newton_schulz_run(&w->iteration, p->options, p->rows, p->cols, at(w->mine)));
    }
    for (int i = 0; i < n; i++) {
        const part *p = &w->parts[of[i]];
        const fsdp_host_copy *whole = i == rank ? &w->host_mine : &w->host_other;
        FSDP_TRY(send_whole(p, whole, i));
        keep_rows(w, p, whole);
    }
    return FSDP_OK;
}

static fsdp_status update_all_matrices(const work *w)
{
    enum {
        MOST = 64 /* largest number of matrices in one call of update_matrices() */
    };
    size_t of[MOST];
    int n = 0;
    for (size_t i = 0; i < w->n; i++) {
        const part *p = &w->parts[i];
        if (p->options->use_adamw)
            continue;
        const int ranks = p->group ? fsdp_group_world_size(p->group) : 1;
        if (n && w->parts[of[0]].group != p->group) {
            FSDP_TRY(update_matrices(w, of, n));
            n = 0;
        }
        of[n++] = i;
        if (n == (ranks < MOST ? ranks : MOST)) {
            FSDP_TRY(update_matrices(w, of, n));
            n = 0;
        }
    }
    return n ? update_matrices(w, of, n) : FSDP_OK;
}

static fsdp_status begin_step(const fsdp_step_item *items, size_t n, float grad_scale, void **out)
{
    work *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    *out = w;
    w->grad_scale = grad_scale;
    FSDP_TRY(open_work(items, n, w));
    return w->device->kernels ? update_all_matrices(w) : FSDP_OK;
}

/* Return the learning rate of a matrix, divided by the learning rate of its parameter group:
 * _adjust_lr in torch. */
static double ratio_of(const part *p)
{
    const double rows = (double)p->rows, cols = (double)p->cols;
    return p->options->adjust_lr_fn == FSDP_MUON_MATCH_RMS_ADAMW ? 0.2 * sqrt(fmax(rows, cols))
                                                                 : sqrt(fmax(1.0, rows / cols));
}

/* Subtract the update of a matrix from its parameter, with the kernel of SGD without momentum. */
static void apply_muon(const work *w, const part *p, fsdp_tensor *local)
{
    const bool wide = local->dtype == FSDP_DTYPE_F32;
    const int64_t n = fsdp_tensor_numel(local);
    w->device->kernels->cast(w->device->context, at(w->scaled), FSDP_DTYPE_F32, at(p->update),
                             FSDP_DTYPE_BF16, n);
    const fsdp_sgd_args args = {.n = n,
                                .param = wide ? at(local) : NULL,
                                .copy = wide ? NULL : at(local),
                                .copy_dtype = local->dtype,
                                .grad = at(w->scaled),
                                .lr = p->options->lr,
                                .weight_decay = p->options->weight_decay,
                                .grad_scale = (float)ratio_of(p)};
    w->device->kernels->sgd(w->device->context, &args, 1, NULL);
}

static void apply_adamw(const work *w, const part *p, fsdp_tensor *local)
{
    const bool wide = local->dtype == FSDP_DTYPE_F32;
    const fsdp_muon_options *o = p->options;
    const fsdp_adamw_args args = {.n = fsdp_tensor_numel(local),
                                  .param = wide ? at(local) : NULL,
                                  .copy = wide ? NULL : at(local),
                                  .copy_dtype = local->dtype,
                                  .exp_avg = at(p->item->state[EXP_AVG]),
                                  .exp_avg_sq = at(p->item->state[EXP_AVG_SQ]),
                                  .grad = at(p->item->grad),
                                  .lr = o->lr,
                                  .beta1 = o->beta1,
                                  .beta2 = o->beta2,
                                  .eps = o->adamw_eps,
                                  .weight_decay = o->weight_decay,
                                  .decoupled = true,
                                  .step = p->item->step,
                                  .grad_scale = w->grad_scale};
    w->device->kernels->adamw(w->device->context, &args, 1, NULL);
}

static fsdp_status apply(void *arg, size_t i)
{
    const work *w = arg;
    const part *p = &w->parts[i];
    fsdp_tensor *local = p->item->local;
    if (!w->device->kernels || !fsdp_tensor_numel(local))
        return FSDP_OK;
    if (p->options->use_adamw)
        apply_adamw(w, p, local);
    else
        apply_muon(w, p, local);
    return FSDP_OK;
}

static const fsdp_whole_step whole = {.begin = begin_step, .apply = apply, .end = end};

static const fsdp_optimizer_class muon = {.state_names = state_names,
                                          .name = name,
                                          .check = check_options,
                                          .check_parameter = check_parameter,
                                          .state_shape = state_shape,
                                          .lr = lr,
                                          .whole = &whole};

/* --- creating optimizers --- */

static fsdp_optimizer_options options_of(const fsdp_muon_options *options)
{
    return (fsdp_optimizer_options){.muon = options ? *options : fsdp_muon_defaults()};
}

fsdp_status fsdp_muon_create(fsdp_module *module, const fsdp_muon_options *options,
                             fsdp_optimizer **optimizer)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_create(&muon, module, &o, optimizer);
}

fsdp_status fsdp_muon_add_group(fsdp_optimizer *optimizer, const fsdp_parameter_list *parameters,
                                const fsdp_muon_options *options)
{
    fsdp_optimizer_options o = options_of(options);
    return fsdp_optimizer_add_group(&muon, optimizer, parameters, &o);
}

/* Returns true if a component of a dotted name is a number, so that the parameter is in a block. */
static bool is_in_block(const char *dotted)
{
    for (const char *c = dotted; *c; c += *c == '.') {
        const size_t n = strcspn(c, ".");
        if (n && strspn(c, "0123456789") == n)
            return true;
        c += n;
    }
    return false;
}

bool fsdp_muon_is_for(const fsdp_named_parameter *p)
{
    return fsdp_parameter_ndim(p->parameter) == 2 && is_in_block(p->name) &&
           !strstr(p->name, "embed") && !strstr(p->name, "bias");
}
