/* The training script of the FSDP2 tutorial ("Getting Started with Fully Sharded Data Parallel"),
 * in C: a small custom transformer, sharded block by block, trained with Adam, saved and resumed.
 *
 *     fsdp launch --nproc-per-node 2 build/examples/fsdp2_train
 *     fsdp launch --nproc-per-node 2 build/examples/fsdp2_train --explicit-prefetching
 *     fsdp launch --nproc-per-node 2 build/examples/fsdp2_train --mixed-precision
 *     fsdp launch --nproc-per-node 2 build/examples/fsdp2_train --dcp-api
 *
 * The first run initializes the weights and saves a checkpoint in checkpoints/. The next run
 * resumes from this checkpoint, on any number of ranks. Without `fsdp launch` there is one rank. */
#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fsdp.h>

/* The tutorial's ModelArgs and the sizes of its batches. */
enum {
    N_LAYERS = 10,
    N_HEADS = 4,
    DIM = 16,
    HIDDEN = 4 * DIM,
    VOCAB_SIZE = 1024,
    MAX_SEQ_LEN = 64,
    BATCH_SIZE = 32,
    SEQ_LEN = 64,
    STEPS = 10,
    TO_PREFETCH = 2,
};

/* ---- the model -------------------------------------------------------------------------------
 *
 * A module has a class name, children, parameters and a forward. It is written for one device,
 * without any code for sharding. Activations are [tokens, DIM]; the batch of the scope says where
 * each sequence begins. */

static fsdp_args result(fsdp_tensor *t)
{
    return (fsdp_args){.t = {t}, .n = 1};
}

/* Compute self.name(x), where self.name is a torch.nn.Linear. */
static fsdp_tensor *linear(fsdp_scope *s, fsdp_module *self, const char *name, fsdp_tensor *x)
{
    return fsdp_linear_forward(s, fsdp_module_find(self, name), x);
}

static fsdp_tensor *norm(fsdp_scope *s, fsdp_module *self, const char *name, fsdp_tensor *x)
{
    return fsdp_layer_norm_forward(s, fsdp_module_find(self, name), x, 1e-5f);
}

static void attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const fsdp_batch *batch = fsdp_scope_get_options(s)->batch;
    const fsdp_attention_options options = {
        .heads = N_HEADS, .q_offsets = batch->source_offsets, .n_sequences = batch->rows};
    fsdp_tensor *queries = linear(s, self, "wq", in->t[0]);
    fsdp_tensor *keys = linear(s, self, "wk", in->t[0]);
    fsdp_tensor *values = linear(s, self, "wv", in->t[0]);
    fsdp_tensor *mixed = fsdp_attention(s, queries, keys, values, NULL, &options);
    *out = result(linear(s, self, "wo", mixed));
}

static void feed_forward_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                 fsdp_args *out)
{
    *out = result(linear(s, self, "w2", fsdp_gelu(s, linear(s, self, "w1", in->t[0]))));
}

static void block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    fsdp_module *attention = fsdp_module_find(self, "attention");
    fsdp_module *feed_forward = fsdp_module_find(self, "feed_forward");
    fsdp_tensor *x = in->t[0];
    fsdp_tensor *h =
        fsdp_add(s, x, fsdp_module_call1(s, attention, norm(s, self, "attention_norm", x)));
    *out = result(fsdp_add(s, h, fsdp_module_call1(s, feed_forward, norm(s, self, "ffn_norm", h))));
}

static fsdp_tensor *embedding(fsdp_scope *s, fsdp_module *self, const char *name,
                              const int32_t *ids)
{
    const fsdp_batch *b = fsdp_scope_get_options(s)->batch;
    return fsdp_embedding_forward(s, fsdp_module_find(self, name), ids, b->source_tokens);
}

static void transformer_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                fsdp_args *out)
{
    const fsdp_batch *b = fsdp_scope_get_options(s)->batch;
    const fsdp_module *layers = fsdp_module_find(self, "layers");
    (void)in; /* tokens are not a tensor: they come with the batch */
    fsdp_tensor *h = fsdp_add(s, embedding(s, self, "tok_embeddings", b->input_ids),
                              embedding(s, self, "pos_embeddings", b->position_ids));
    for (int i = 0; i < fsdp_module_n_children(layers); i++)
        h = fsdp_module_call1(s, fsdp_module_child(layers, i), h);
    *out = result(linear(s, self, "output", norm(s, self, "norm", h)));
}

static fsdp_status add_module(fsdp_module *parent, const char *name, const char *class_name,
                              fsdp_forward_fn *forward, fsdp_module **module)
{
    FSDP_TRY(fsdp_module_create(class_name, module));
    fsdp_module_set_forward(*module, forward, NULL, NULL);
    return fsdp_module_add_child(parent, name, *module);
}

/* Add a torch.nn.Linear(in, out), with weights drawn from N(0, 1 / (3 in)). */
static fsdp_status add_linear(fsdp_module *parent, const char *name, int in, int out, bool bias)
{
    static const float std[] = {[DIM] = 0.1443f, [HIDDEN] = 0.0722f};
    fsdp_module *m;
    FSDP_TRY(fsdp_linear_create(in, out, bias, (fsdp_init){.std = std[in]}, &m));
    return fsdp_module_add_child(parent, name, m);
}

static fsdp_status add_norm(fsdp_module *parent, const char *name)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_layer_norm_create(DIM, &m));
    FSDP_TRY(fsdp_module_add_child(parent, name, m));
    return fsdp_module_set_extra_repr(m, "(16,), eps=1e-05, elementwise_affine=True, bias=True");
}

static fsdp_status add_embedding(fsdp_module *parent, const char *name, int rows)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_embedding_create(rows, DIM, (fsdp_init){.std = 1.0f}, &m));
    return fsdp_module_add_child(parent, name, m);
}

static fsdp_status add_block(fsdp_module *layers, int i)
{
    char name[16];
    fsdp_module *block, *attention, *feed_forward;
    snprintf(name, sizeof name, "%d", i);
    FSDP_TRY(add_module(layers, name, "TransformerBlock", block_forward, &block));
    FSDP_TRY(add_norm(block, "attention_norm"));
    FSDP_TRY(add_module(block, "attention", "Attention", attention_forward, &attention));
    FSDP_TRY(add_linear(attention, "wq", DIM, DIM, false));
    FSDP_TRY(add_linear(attention, "wk", DIM, DIM, false));
    FSDP_TRY(add_linear(attention, "wv", DIM, DIM, false));
    FSDP_TRY(add_linear(attention, "wo", DIM, DIM, false));
    FSDP_TRY(add_norm(block, "ffn_norm"));
    FSDP_TRY(add_module(block, "feed_forward", "FeedForward", feed_forward_forward, &feed_forward));
    FSDP_TRY(add_linear(feed_forward, "w1", DIM, HIDDEN, true));
    return add_linear(feed_forward, "w2", HIDDEN, DIM, true);
}

/* Create the model. The caller owns *model even after a failure, which leaves the model
 * incomplete. */
static fsdp_status transformer(fsdp_module **model)
{
    fsdp_module *layers;
    FSDP_TRY(fsdp_module_create("Transformer", model));
    fsdp_module_set_forward(*model, transformer_forward, NULL, NULL);
    FSDP_TRY(add_embedding(*model, "tok_embeddings", VOCAB_SIZE));
    FSDP_TRY(add_embedding(*model, "pos_embeddings", MAX_SEQ_LEN));
    FSDP_TRY(add_module(*model, "layers", "ModuleList", NULL, &layers));
    for (int i = 0; i < N_LAYERS; i++)
        FSDP_TRY(add_block(layers, i));
    FSDP_TRY(add_norm(*model, "norm"));
    return add_linear(*model, "output", DIM, VOCAB_SIZE, false);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The values of the flags, whose table replaces argparse's add_argument(). */
typedef struct arguments {
    bool explicit_prefetching, mixed_precision, dcp_api;
} arguments;

#define ADD(flag, field, text)                                                                     \
    {                                                                                              \
        .name = flag, .type = FSDP_OPTION_BOOL, .offset = offsetof(arguments, field), .help = text \
    }
static const fsdp_option flags[] = {
    ADD("explicit-prefetching", explicit_prefetching, "gather two layers ahead of each"),
    ADD("mixed-precision", mixed_precision, "compute in bfloat16, reduce in float32"),
    ADD("dcp-api", dcp_api, "rank 0 alone reads a checkpoint, and broadcasts it"),
};
static const fsdp_options_spec parser = {.program = "fsdp2_train",
                                         .usage = "[options]",
                                         .summary = "PyTorch FSDP2 example",
                                         .table = flags,
                                         .count = sizeof flags / sizeof *flags};

typedef struct run {
    arguments args;
    fsdp_options *options;
    fsdp_group *group;
    fsdp_device *device;
    fsdp_module *model, *layers;
    fsdp_parameter_list parameters;
    fsdp_optimizer *optim;
    fsdp_tape *tape;
} run;

/* Like Python's assert: a failure ends the run on all ranks. */
static fsdp_status assert_holds(bool holds, const char *what)
{
    if (holds)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "assertion failed: %s", what);
}

/* The modules have no memory until they are sharded (as on the tutorial's meta device), so no rank
 * allocates the unsharded model. The layers are sharded first; the root's unit gets the remaining
 * parameters. */
static fsdp_status shard(run *r)
{
    fsdp_fully_shard_options fsdp_kwargs = {0};
    if (r->args.mixed_precision)
        fsdp_kwargs.mp_policy =
            (fsdp_mp_policy){.param_dtype = FSDP_DTYPE_BF16, .reduce_dtype = FSDP_DTYPE_F32};
    for (int i = 0; i < fsdp_module_n_children(r->layers); i++)
        FSDP_TRY(
            fsdp_fully_shard(fsdp_module_child(r->layers, i), r->group, r->device, &fsdp_kwargs));
    return fsdp_fully_shard(r->model, r->group, r->device, &fsdp_kwargs);
}

/* Check that parameters are DTensors, sharded on dimension 0. With only one rank, nothing is
 * sharded. */
static fsdp_status inspect_model(const run *r)
{
    FSDP_TRY(assert_holds(fsdp_module_is_unit(r->model), "the model is an FSDP module"));
    for (size_t i = 0; i < r->parameters.n && fsdp_group_world_size(r->group) > 1; i++) {
        const fsdp_tensor *local = fsdp_parameter_local(r->parameters.items[i].parameter);
        fsdp_placement placement = fsdp_dtensor_placement(local);
        FSDP_TRY(assert_holds(fsdp_is_dtensor(local), "a parameter is a DTensor"));
        FSDP_TRY(assert_holds(placement.kind == FSDP_SHARD && placement.dim == 0,
                              "a parameter's placements are (Shard(dim=0),)"));
    }
    return fsdp_group_rank(r->group) == 0 ? fsdp_module_print(r->model, stdout, FSDP_PRINT_FSDP2)
                                          : FSDP_OK;
}

/* Check that sharded parameters are float32, and that unsharded parameters, with which the model
 * computes, are bfloat16. */
static fsdp_status inspect_mixed_precision(const run *r)
{
    const fsdp_parameter *own = /* a parameter of the root's unit */
        fsdp_module_parameter(fsdp_module_find(r->model, "output"), "weight");
    FSDP_TRY(assert_holds(fsdp_tensor_dtype(fsdp_parameter_local(own)) == FSDP_DTYPE_F32,
                          "a sharded parameter is float32"));
    FSDP_TRY(fsdp_unit_unshard(r->model));
    FSDP_TRY(assert_holds(fsdp_tensor_dtype(fsdp_parameter_data(own)) == FSDP_DTYPE_BF16,
                          "an unsharded parameter is bfloat16"));
    FSDP_TRY(assert_holds(fsdp_tensor_has_data(fsdp_parameter_data(own)), "it is unsharded"));
    FSDP_TRY(fsdp_unit_reshard(r->model));
    return assert_holds(!fsdp_tensor_has_data(fsdp_parameter_data(own)), "it is resharded");
}

/* Request that layers i + step to i + step * TO_PREFETCH are gathered while layer i computes. */
static fsdp_status prefetch_from(const run *r, int i, int step, bool backward)
{
    fsdp_module *layers_to_prefetch[TO_PREFETCH], *layer = fsdp_module_child(r->layers, i);
    for (int j = 0; j < TO_PREFETCH; j++)
        layers_to_prefetch[j] = fsdp_module_child(r->layers, i + step * (j + 1));
    return backward ? fsdp_set_modules_to_backward_prefetch(layer, layers_to_prefetch, TO_PREFETCH)
                    : fsdp_set_modules_to_forward_prefetch(layer, layers_to_prefetch, TO_PREFETCH);
}

static fsdp_status set_prefetching(const run *r)
{
    for (int i = 0; i < N_LAYERS - TO_PREFETCH; i++)
        FSDP_TRY(prefetch_from(r, i, 1, false));
    for (int i = TO_PREFETCH; i < N_LAYERS; i++)
        FSDP_TRY(prefetch_from(r, i, -1, true));
    return FSDP_OK;
}

/* x = torch.randint(0, vocab_size, (batch_size, seq_len)), different on each rank. */
static fsdp_status random_batch(uint32_t *state, fsdp_batch **batch)
{
    int32_t ids[BATCH_SIZE][SEQ_LEN];
    fsdp_batch_row rows[BATCH_SIZE];
    const fsdp_batch_format format = {.task = FSDP_TASK_CAUSAL_LM};
    for (int i = 0; i < BATCH_SIZE; i++) {
        for (int j = 0; j < SEQ_LEN; j++) {
            *state = *state * 1664525u + 1013904223u;
            ids[i][j] = (int32_t)(*state >> 22); /* 10 bits: [0, VOCAB_SIZE) */
        }
        rows[i] = (fsdp_batch_row){.source = ids[i], .source_len = SEQ_LEN};
    }
    return fsdp_batch_create(rows, BATCH_SIZE, &format, batch);
}

/* loss = model(x).sum(); loss.backward(). Gradients are averaged over the ranks. */
static fsdp_status forward_backward(run *r, int step, const fsdp_batch *x, double *loss)
{
    fsdp_scope *s;
    const fsdp_scope_options options = {
        .training = true, .step = (uint32_t)step /* for error messages */, .batch = x};
    FSDP_TRY(fsdp_scope_open(r->device, r->tape, &options, &s));
    fsdp_args out = fsdp_module_call(s, r->model, NULL, (fsdp_args){.n = 0});
    fsdp_tensor *sum = fsdp_sum(s, out.t[0]);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_item(sum, loss);
    if (status == FSDP_OK)
        status = fsdp_backward(r->tape, &sum, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status train_step(run *r, int step, uint32_t *random, double *loss)
{
    fsdp_batch *x;
    double norm;
    float scale;
    if (r->args.explicit_prefetching) /* the first gather starts before the batch exists */
        FSDP_TRY(fsdp_unit_unshard_async(r->model, NULL));
    FSDP_TRY(random_batch(random, &x));
    fsdp_status status = forward_backward(r, step, x, loss);
    fsdp_batch_release(x);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_clip_grad_norm(&r->parameters, 1.0, NULL, &norm, &scale));
    FSDP_TRY(fsdp_optimizer_step(r->optim, scale));
    fsdp_optimizer_zero_grad(r->optim);
    return fsdp_all_reduce(r->group, loss, 1, FSDP_DTYPE_F64, FSDP_REDUCE_AVG);
}

/* ---- checkpoints -----------------------------------------------------------------------------
 *
 * The files are checkpoints/<dtensor_api or dcp_api>/<milliseconds>/{model,optim}_state_dict.pt.
 * torch.load can read them, and this program can read the tutorial's files. */

enum {
    PATH_BYTES = 512
};

static const char *checkpoint_folder(const run *r)
{
    return r->args.dcp_api ? "checkpoints/dcp_api" : "checkpoints/dtensor_api";
}

static void file_path(const run *r, int64_t time_ms, const char *name, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/%lld/%s", checkpoint_folder(r), (long long)time_ms, name);
}

/* Return true if the checkpoint has both files. A run that is killed between them leaves a folder
 * with only one. */
static bool is_complete(const run *r, int64_t time_ms)
{
    static const char *const names[] = {"model_state_dict.pt", "optim_state_dict.pt"};
    char path[PATH_BYTES];
    for (int i = 0; i < 2; i++) {
        file_path(r, time_ms, names[i], path);
        if (access(path, F_OK) != 0) {
            if (fsdp_group_rank(r->group) == 0)
                fprintf(stderr, "fsdp2_train: %s is missing, so this checkpoint is not used\n",
                        path);
            return false;
        }
    }
    return true;
}

/* Get the time of the newest checkpoint, or 0 if there is none. Rank 0 reads the folder and
 * broadcasts the time, so all ranks agree. */
static fsdp_status last_training_time(const run *r, int64_t *time_ms)
{
    int64_t newest = 0;
    DIR *folder = fsdp_group_rank(r->group) == 0 ? opendir(checkpoint_folder(r)) : NULL;
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        int64_t ms = strtoll(e->d_name, NULL, 10);
        if (ms > newest && is_complete(r, ms))
            newest = ms;
    }
    if (folder)
        closedir(folder);
    *time_ms = newest;
    return fsdp_broadcast(r->group, time_ms, sizeof *time_ms, 0);
}

/* With the DTensor API, every rank reads the file and splits each full tensor into DTensors with
 * the mesh and the placements of the parameter. With the DCP API, only rank 0 reads the file, and
 * it broadcasts what the other ranks need. */
static fsdp_state_dict_options loading(const run *r)
{
    return (fsdp_state_dict_options){
        .group = r->group, .full_state_dict = true, .broadcast_from_rank0 = r->args.dcp_api};
}

static fsdp_status read_full(const run *r, int64_t time_ms, const char *name,
                             fsdp_state_dict **full)
{
    char path[PATH_BYTES];
    if (r->args.dcp_api && fsdp_group_rank(r->group) > 0)
        return fsdp_state_dict_create(full);
    file_path(r, time_ms, name, path);
    return fsdp_torch_load(path, r->device, full);
}

static fsdp_status load_model(const run *r, int64_t time_ms)
{
    const fsdp_state_dict_options options = loading(r);
    fsdp_state_dict *full;
    FSDP_TRY(read_full(r, time_ms, "model_state_dict.pt", &full));
    fsdp_status status = fsdp_set_model_state_dict(r->model, full, &options, NULL);
    fsdp_state_dict_destroy(full);
    return status;
}

static fsdp_status load_optim(const run *r, int64_t time_ms)
{
    const fsdp_state_dict_options options = loading(r);
    fsdp_state_dict *full;
    FSDP_TRY(read_full(r, time_ms, "optim_state_dict.pt", &full));
    fsdp_status status = fsdp_set_optimizer_state_dict(r->model, r->optim, full, &options);
    fsdp_state_dict_destroy(full);
    return status;
}

/* The state dicts are sharded, so no tensor is gathered for them. Saving gathers the tensors one
 * after another, and rank 0 writes them. */
static fsdp_status save(const run *r)
{
    char path[PATH_BYTES];
    struct timespec now;
    fsdp_state_dict *model, *optim;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    FSDP_TRY(fsdp_broadcast(r->group, &time_ms, sizeof time_ms, 0));
    file_path(r, time_ms, "", path);
    if (fsdp_group_rank(r->group) == 0) { /* existing folders are not an error */
        mkdir("checkpoints", 0777);
        mkdir(checkpoint_folder(r), 0777);
        mkdir(path, 0777);
    }
    FSDP_TRY(fsdp_get_state_dict(r->model, r->optim, NULL, &model, &optim));
    file_path(r, time_ms, "model_state_dict.pt", path);
    fsdp_status status = fsdp_torch_save(model, path, r->group);
    file_path(r, time_ms, "optim_state_dict.pt", path);
    if (status == FSDP_OK)
        status = fsdp_torch_save(optim, path, r->group);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    return status;
}

/* ---- main ------------------------------------------------------------------------------------ */

static fsdp_status train(run *r)
{
    uint32_t random = (uint32_t)fsdp_group_rank(r->group);
    for (int step = 0; step < STEPS; step++) {
        double loss = 0.0;
        FSDP_TRY(train_step(r, step, &random, &loss));
        if (fsdp_group_rank(r->group) == 0)
            printf("step %d: loss %.4f\n", step + 1, loss);
    }
    return FSDP_OK;
}

static fsdp_status open_model(run *r)
{
    FSDP_TRY(transformer(&r->model));
    r->layers = fsdp_module_find(r->model, "layers");
    FSDP_TRY(shard(r));
    return fsdp_module_parameters(r->model, false, &r->parameters);
}

static fsdp_status main_of_rank(run *r)
{
    int64_t time_ms;
    FSDP_TRY(fsdp_init_process_group(NULL, &r->group));
    FSDP_TRY(fsdp_default_device(r->group, &r->device));
    FSDP_TRY(fsdp_tape_create(&r->tape));
    FSDP_TRY(open_model(r));
    FSDP_TRY(inspect_model(r));
    if (r->args.explicit_prefetching)
        FSDP_TRY(set_prefetching(r));
    FSDP_TRY(last_training_time(r, &time_ms));
    FSDP_TRY(time_ms ? load_model(r, time_ms) : fsdp_module_init(r->model, 0));
    if (r->args.mixed_precision)
        FSDP_TRY(inspect_mixed_precision(r));
    fsdp_adamw_options adam = fsdp_adamw_defaults(); /* torch.optim.Adam: no weight decay */
    adam.l2 = true;
    adam.weight_decay = 0.0;
    adam.lr = 1e-2;
    FSDP_TRY(fsdp_adamw_create(r->model, &adam, &r->optim));
    if (time_ms)
        FSDP_TRY(load_optim(r, time_ms));
    if (fsdp_group_rank(r->group) == 0 && time_ms)
        printf("resumed from %s/%lld\n", checkpoint_folder(r), (long long)time_ms);
    FSDP_TRY(train(r));
    return save(r);
}

static void cleanup(run *r)
{
    fsdp_tape_destroy(r->tape);
    fsdp_optimizer_destroy(r->optim);
    fsdp_parameter_list_free(&r->parameters);
    fsdp_module_destroy(r->model);
    fsdp_device_destroy(r->device);
    fsdp_destroy_process_group(r->group);
    fsdp_options_destroy(r->options);
}

int main(int argc, char **argv)
{
    run r = {0};
    bool wanted = false; /* stays false with --help */
    fsdp_status status = fsdp_parse_args(&parser, argc, argv, &r.args, &r.options, &wanted);
    if (status == FSDP_OK && wanted)
        status = main_of_rank(&r);
    if (status != FSDP_OK) {
        fsdp_error_print("fsdp2_train");
        if (r.group)
            fsdp_group_abort(r.group, status); /* stops the peers immediately, with this message */
    }
    const int code = status == FSDP_OK ? 0 : r.options ? 1 : 2; /* 2 for misuse, as in argparse */
    cleanup(&r);
    return code;
}
