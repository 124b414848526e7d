/* Training inside somebody's own program, with a module that it defines itself: two layers that
 * learn y = sin(x). Ranks are threads. The program has its own main() and signal handlers, and may
 * have called MPI_Init(): the library installs no handlers, prints nothing, calls neither exit()
 * nor MPI, and returns failures to the caller. Usage: embed [RANKS], 1, 2 or 4. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <fsdp.h>

enum {
    ROWS = 16,         /* rows of a micro-batch */
    MICRO_BATCHES = 4, /* ranks times accumulation steps: results do not depend on the ranks */
    STEPS = 400        /* optimizer steps */
};

/* torch.nn.Sequential(Linear(1, 32), Tanh(), Linear(32, 1)) */
static void forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    fsdp_tensor *h = fsdp_linear_forward(s, fsdp_module_find(self, "0"), in->t[0]);
    h = fsdp_linear_forward(s, fsdp_module_find(self, "2"), fsdp_tanh(s, h));
    *out = (fsdp_args){.t = {h}, .n = 1};
}

static fsdp_status create_model(fsdp_module **model)
{
    fsdp_module *linear;
    FSDP_TRY(fsdp_module_create("Sequential", model));
    fsdp_module_set_forward(*model, forward, NULL, NULL);
    FSDP_TRY(fsdp_linear_create(1, 32, true, (fsdp_init){.std = 1.0f}, &linear));
    FSDP_TRY(fsdp_module_add_child(*model, "0", linear));
    FSDP_TRY(fsdp_linear_create(32, 1, true, (fsdp_init){.std = 0.2f}, &linear));
    return fsdp_module_add_child(*model, "2", linear);
}

typedef struct rank {
    fsdp_accelerator *accelerator;
    fsdp_module *model;
    fsdp_optimizer *optimizer;
    double loss; /* the last one on this rank */
} rank;

/* Forward and backward of micro-batch `at`, counted over all steps and ranks. */
static fsdp_status train_batch(rank *r, int at)
{
    float x[ROWS], y[ROWS];
    fsdp_scope *s;
    fsdp_tensor *inputs;
    for (int i = 0; i < ROWS; i++)
        y[i] = sinf(x[i] = (float)((at * ROWS + i) * 37 % 601) / 100.0f - 3.0f);
    FSDP_TRY(fsdp_tensor_from_data(fsdp_accelerator_device(r->accelerator), FSDP_DTYPE_F32, 2,
                                   (int64_t[]){ROWS, 1}, x, FSDP_TAG_DATA, &inputs));
    fsdp_status status = fsdp_accelerator_scope_open(r->accelerator, true, NULL, &s);
    if (status == FSDP_OK) {
        fsdp_tensor *out = fsdp_mse_loss(s, fsdp_module_call1(s, r->model, inputs), y, 1.0f / ROWS);
        status = fsdp_accelerator_backward(r->accelerator, s, out);
        if (status == FSDP_OK)
            status = fsdp_tensor_item(out, &r->loss);
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(inputs);
    return status;
}

static fsdp_status train_steps(rank *r)
{
    const int ranks = fsdp_accelerator_num_processes(r->accelerator);
    FSDP_TRY(create_model(&r->model));
    FSDP_TRY(fsdp_adamw_create(r->model, NULL, &r->optimizer));
    fsdp_optimizer_set_lr(r->optimizer, 0.01);
    FSDP_TRY(fsdp_accelerator_prepare_model(r->accelerator, r->model));
    FSDP_TRY(fsdp_accelerator_prepare_optimizer(r->accelerator, r->optimizer));
    FSDP_TRY(fsdp_module_init(r->model, 1));
    for (int i = 0; i < STEPS * MICRO_BATCHES / ranks; i++) {
        FSDP_TRY(fsdp_accelerator_accumulate_begin(r->accelerator));
        FSDP_TRY(train_batch(r, i * ranks + fsdp_accelerator_process_index(r->accelerator)));
        FSDP_TRY(fsdp_accelerator_optimizer_step(r->accelerator, r->optimizer));
        FSDP_TRY(fsdp_accelerator_zero_grad(r->accelerator, r->optimizer));
        FSDP_TRY(fsdp_accelerator_accumulate_end(r->accelerator));
    }
    return fsdp_broadcast(fsdp_accelerator_group(r->accelerator), &r->loss, sizeof r->loss,
                          ranks - 1);
}

static fsdp_status train(fsdp_group *group, void *arg) /* the thread of a rank */
{
    const int steps = MICRO_BATCHES / fsdp_group_world_size(group);
    const fsdp_accelerator_options options = {
        .group = group, .cpu = true, .gradient_accumulation_steps = steps};
    rank r = {0};
    fsdp_status status = fsdp_accelerator_create(&options, &r.accelerator);
    if (status == FSDP_OK)
        status = train_steps(&r);
    if (status != FSDP_OK)
        fsdp_group_abort(group, status); /* the other ranks return with this message */
    else if (fsdp_group_rank(group) == 0)
        *(double *)arg = r.loss;
    fsdp_optimizer_destroy(r.optimizer);
    fsdp_module_destroy(r.model);
    fsdp_accelerator_destroy(r.accelerator);
    return status;
}

int main(int argc, char **argv)
{
    const int ranks = argc > 1 ? atoi(argv[1]) : 2;
    double loss = 0;
    signal(SIGINT, SIG_IGN); /* this stays as it is */
    if (ranks < 1 || MICRO_BATCHES % ranks)
        return fsdp_error(FSDP_ERR_INVALID, "usage: embed [1 | 2 | 4]"), fsdp_error_print("embed"),
               2;
    const fsdp_status status = fsdp_run_ranks(ranks, train, &loss, NULL);
    if (status == FSDP_OK)
        printf("loss of the last batch: %.9g\n", loss);
    else
        fsdp_error_print("embed");
    return status != FSDP_OK;
}
