/* See state_case.h. */
#include "tests/state_dict/state_case.h"

#include "tests/fsdp/toy.h"

static const toy_shape shape = {.vocab = 7, .width = 3, .hidden = 5, .blocks = 2};
static const toy_shape wide = {.vocab = 7, .width = 16, .hidden = 272, .blocks = 2};

static fsdp_status create_optimizer(state_case *f, state_case_optimizer kind)
{
    fsdp_sgd_options sgd = fsdp_sgd_defaults();
    fsdp_adamw_options adamw = fsdp_adamw_defaults();
    sgd.momentum = 0.5;
    adamw.weight_decay = 0.25;
    if (kind == STATE_CASE_SGD)
        return fsdp_sgd_create(f->model, &sgd, &f->optimizer);
    if (kind == STATE_CASE_ADAFACTOR)
        return fsdp_adafactor_create(f->model, NULL, &f->optimizer);
    if (kind == STATE_CASE_ROUNDED) {
        adamw.state_dtype = FSDP_DTYPE_BF16;
        adamw.bf16_stochastic_round = true;
        adamw.seed = 3;
    }
    if (kind == STATE_CASE_SCHEDULE_FREE) {
        fsdp_schedule_free_options free = fsdp_schedule_free_adamw_defaults();
        free.lr = 0.05;
        free.r = 0.5;
        free.warmup_steps = 4;
        return fsdp_schedule_free_adamw_create(f->model, &free, &f->optimizer);
    }
    adamw.min_8bit_size = 100;
    if (kind == STATE_CASE_ADAMW_8BIT)
        return fsdp_adamw_8bit_create(f->model, &adamw, &f->optimizer);
    return fsdp_adamw_create(f->model, &adamw, &f->optimizer);
}

fsdp_status state_case_open_with(state_case *f, fsdp_group *group, state_case_optimizer kind,
                                 uint64_t seed, const fsdp_fully_shard_options *options)
{
    *f = (state_case){.group = group};
    FSDP_TRY(fsdp_device_create(NULL, &f->device));
    FSDP_TRY(toy_create(kind == STATE_CASE_ADAMW_8BIT ? &wide : &shape, &f->model));
    FSDP_TRY(toy_shard(f->model, group, f->device, options));
    FSDP_TRY(fsdp_set_gradient_divide_factor(f->model, 1.0));
    FSDP_TRY(fsdp_module_init(f->model, seed));
    FSDP_TRY(fsdp_module_parameters(f->model, false, &f->list));
    return create_optimizer(f, kind);
}

fsdp_status state_case_open(state_case *f, fsdp_group *group, state_case_optimizer kind,
                            uint64_t seed)
{
    return state_case_open_with(f, group, kind, seed, NULL);
}

void state_case_close(state_case *f)
{
    fsdp_parameter_list_free(&f->list);
    fsdp_optimizer_destroy(f->optimizer);
    fsdp_module_destroy(f->model);
    fsdp_device_destroy(f->device);
}

fsdp_status state_case_train(state_case *f, int steps)
{
    static const int32_t ids[] = {1, 2, 3, 4, 5}, labels[] = {2, 3, 4, 5, 6};
    const toy_batch batch = {
        .ids = ids, .labels = labels, .n = 5, .factor = fsdp_group_rank(f->group) ? 0.0f : 0.2f};
    fsdp_tape *tape;
    FSDP_TRY(fsdp_tape_create(&tape));
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < steps && status == FSDP_OK; i++) {
        fsdp_scope *s;
        status = fsdp_scope_open(f->device, tape, NULL, &s);
        if (status != FSDP_OK)
            break;
        fsdp_tensor *loss = toy_loss(s, f->model, &batch);
        status = fsdp_scope_status(s);
        if (status == FSDP_OK)
            status = fsdp_backward(tape, &loss, NULL, 1);
        fsdp_scope_close(s);
        if (status == FSDP_OK)
            status = fsdp_optimizer_step(f->optimizer, 1.0f);
        fsdp_optimizer_zero_grad(f->optimizer);
    }
    fsdp_tape_destroy(tape);
    return status;
}

fsdp_status state_case_get(state_case *f, const fsdp_state_dict_options *options,
                           fsdp_state_dict **all)
{
    fsdp_state_dict *model, *optim;
    FSDP_TRY(fsdp_get_state_dict(f->model, f->optimizer, options, &model, &optim));
    fsdp_status status = fsdp_state_dict_create(all);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(*all, "model", model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(*all, "optim", optim);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    return status;
}

fsdp_status state_case_set(state_case *f, const fsdp_state_dict *all,
                           const fsdp_state_dict_options *options)
{
    fsdp_state_dict *model, *optim = NULL;
    FSDP_TRY(fsdp_state_dict_part(all, "model", &model));
    fsdp_status status = fsdp_state_dict_part(all, "optim", &optim);
    if (status == FSDP_OK)
        status = fsdp_set_state_dict(f->model, f->optimizer, model, optim, options, NULL);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    return status;
}
