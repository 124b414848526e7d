/* Casts by mp_policy at the beginning and end of a unit's forward, and FSDP1's MixedPrecision. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/bf16.h"
#include "src/fsdp/state.h"
#include "tests/test.h"

enum {
    ROWS = 5,
    WIDTH = 7
};

/* y = x w^T, then the child, if there is one. Passes its table on, and records the dtypes of its
 * inputs. */
typedef struct probe {
    fsdp_parameter *w;
    fsdp_dtype seen, seen_table, seen_inside; /* dtypes of its inputs and of the child's output */
    fsdp_dtype seen_buffers;                  /* buffer_dtype that the scope gives */
    fsdp_dtype cast_to; /* if cast_by_hand: x is cast to it before w is read */
    bool cast_by_hand;
} probe;

static void probe_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    probe *p = self->impl;
    fsdp_tensor *x = in->t[0], *table = in->n > 1 ? in->t[1] : NULL;
    p->seen = x->dtype;
    p->seen_buffers = s->run->buffer_dtype;
    p->seen_table = table ? table->dtype : FSDP_DTYPE_F32;
    if (p->cast_by_hand)
        x = fsdp_cast(s, x, p->cast_to);
    x = fsdp_linear(s, x, fsdp_read(s, p->w), NULL);
    if (fsdp_module_n_children(self)) {
        x = fsdp_module_call(s, fsdp_module_child(self, 0), NULL,
                             (fsdp_args){.t = {x, table}, .n = 2})
                .t[0];
        p->seen_inside = x ? x->dtype : FSDP_DTYPE_U8;
    }
    *out = (fsdp_args){.t = {x, table}, .n = 2};
}

static fsdp_status add_probe(fsdp_module *parent, fsdp_module **module)
{
    fsdp_module *m;
    probe *p = fsdp_calloc(1, sizeof *p);
    if (!p)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_module_create("Probe", &m);
    if (status != FSDP_OK) {
        fsdp_free(p);
        return status;
    }
    fsdp_module_set_forward(m, probe_forward, p, fsdp_free);
    *module = m;
    if (parent)
        FSDP_TRY(fsdp_module_add_child(parent, "inner", m));
    return fsdp_module_add_parameter(m, "w", 2, (const int64_t[]){WIDTH, WIDTH},
                                     (fsdp_init){.std = 0.5f}, &p->w);
}

static probe *probe_of(const fsdp_module *m)
{
    return m->impl;
}

/* A root, with a unit inside if inner is given. */
typedef struct model {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_module *root, *inner;
    fsdp_dtype input; /* dtype of x; initially float32 */
} model;

static fsdp_status model_open(fsdp_group *group, const fsdp_mp_policy *root,
                              const fsdp_mp_policy *inner, model *m)
{
    *m = (model){0};
    FSDP_TRY(fsdp_device_create(NULL, &m->device));
    FSDP_TRY(fsdp_tape_create(&m->tape));
    FSDP_TRY(add_probe(NULL, &m->root));
    if (inner) {
        FSDP_TRY(add_probe(m->root, &m->inner));
        FSDP_TRY(fsdp_fully_shard(m->inner, group, m->device,
                                  &(fsdp_fully_shard_options){.mp_policy = *inner}));
    }
    FSDP_TRY(fsdp_fully_shard(m->root, group, m->device,
                              &(fsdp_fully_shard_options){.mp_policy = *root}));
    return fsdp_module_init(m->root, 3);
}

static void model_close(model *m)
{
    fsdp_tape_destroy(m->tape);
    fsdp_module_destroy(m->root);
    fsdp_device_destroy(m->device);
}

/* The results of one forward and backward. */
typedef struct outcome {
    fsdp_dtype dtype, table_dtype; /* dtypes of the outputs */
    float y[ROWS * WIDTH], dx[ROWS * WIDTH];
    float dw[WIDTH * WIDTH]; /* this rank's rows of the root's gradient */
} outcome;

static fsdp_status call(model *m, fsdp_tensor *x, fsdp_tensor *ones, bool table, outcome *o)
{
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(m->device, m->tape, NULL, &s));
    fsdp_tensor *t = fsdp_new(s, FSDP_DTYPE_F32, 1, (const int64_t[]){3});
    t->is_table = table;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    k->fill(fsdp_scope_context(s), fsdp_tensor_ptr(t), t->dtype, 1.0, 3);
    fsdp_args out = fsdp_module_call(s, m->root, NULL, (fsdp_args){.t = {x, t}, .n = 2});
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK) {
        o->dtype = out.t[0]->dtype;
        o->table_dtype = out.t[1]->dtype;
        status = fsdp_tensor_to_floats(out.t[0], o->y);
    }
    fsdp_tensor *y = status == FSDP_OK ? fsdp_cast(s, out.t[0], FSDP_DTYPE_F32) : NULL;
    if (y)
        status = fsdp_backward(m->tape, &y, &ones, 1);
    fsdp_scope_close(s);
    return status;
}

/* Replace *x by x in the model's input dtype. */
static fsdp_status narrow(const model *m, fsdp_tensor **x)
{
    fsdp_tensor *narrowed;
    FSDP_TRY(
        fsdp_tensor_create(m->device, m->input, (*x)->ndim, (*x)->shape, FSDP_TAG_DATA, &narrowed));
    m->device->kernels->cast(m->device->context, fsdp_tensor_ptr(narrowed), m->input,
                             fsdp_tensor_ptr(*x), (*x)->dtype, fsdp_tensor_numel(*x));
    fsdp_tensor_release(*x);
    *x = narrowed;
    return FSDP_OK;
}

/* wants_dx: the input is a leaf that requires a gradient. */
static fsdp_status run(model *m, bool wants_dx, bool table, outcome *o)
{
    static const int64_t shape[2] = {ROWS, WIDTH};
    float values[ROWS * WIDTH], grad[ROWS * WIDTH];
    fsdp_tensor *x, *ones;
    memset(o, 0, sizeof *o);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        values[i] = 0.37f * (float)(i % 11) - 1.3f;
        grad[i] = 0.21f * (float)(i % 5) + 0.03f;
    }
    FSDP_TRY(fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 2, shape, values, FSDP_TAG_DATA, &x));
    FSDP_TRY(
        fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 2, shape, grad, FSDP_TAG_DATA, &ones));
    fsdp_status status = fsdp_tensor_set_requires_grad(x, wants_dx);
    if (status == FSDP_OK && m->input != FSDP_DTYPE_F32)
        status = narrow(m, &x);
    fsdp_module_zero_grad(m->root);
    if (status == FSDP_OK)
        status = call(m, x, ones, table, o);
    if (status == FSDP_OK && wants_dx)
        status = fsdp_tensor_to_floats(fsdp_tensor_grad(x), o->dx);
    if (status == FSDP_OK)
        status = fsdp_tensor_to_floats(fsdp_parameter_grad(probe_of(m->root)->w), o->dw);
    fsdp_tensor_release(x);
    fsdp_tensor_release(ones);
    return status;
}

static bool same(const outcome *a, const outcome *b)
{
    return memcmp(a->y, b->y, sizeof a->y) == 0 && memcmp(a->dx, b->dx, sizeof a->dx) == 0 &&
           memcmp(a->dw, b->dw, sizeof a->dw) == 0;
}

static const fsdp_dtype halves[] = {FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

/* The results have the same bits as those of a unit that casts nothing and whose input is cast by
 * hand, also with activation checkpointing. */
TEST_RANKS(inputs_are_cast_to_param_dtype_and_gradients_back, 2)
{
    for (size_t d = 0; d < 2; d++) {
        const fsdp_mp_policy casts = {.param_dtype = halves[d]},
                             by_hand = {.param_dtype = halves[d], .no_cast_forward_inputs = true};
        model m, hand;
        outcome got, want, again;
        ASSERT_OK(model_open(t->group, &casts, NULL, &m));
        ASSERT_OK(model_open(t->group, &by_hand, NULL, &hand));
        probe_of(hand.root)->cast_by_hand = true;
        probe_of(hand.root)->cast_to = halves[d];
        ASSERT_OK(run(&m, true, false, &got));
        ASSERT_OK(run(&hand, true, false, &want));
        ASSERT_INT(probe_of(m.root)->seen, halves[d]);
        ASSERT_INT(probe_of(m.root)->seen_table, halves[d]); /* not a table, so it is cast */
        ASSERT_INT(probe_of(hand.root)->seen, FSDP_DTYPE_F32);
        ASSERT_INT(got.dtype, halves[d]);
        ASSERT(same(&got, &want));
        fsdp_module_set_activation_checkpointing(m.root, true);
        ASSERT_OK(run(&m, true, false, &again));
        ASSERT(same(&got, &again));
        ASSERT_OK(run(&m, false, true, &again)); /* an input that needs no gradient */
        ASSERT(memcmp(again.dw, got.dw, sizeof got.dw) == 0);
        model_close(&m);
        model_close(&hand);
    }
}

TEST_RANKS(inputs_that_are_not_cast_meet_parameters_of_another_dtype, 2)
{
    const fsdp_mp_policy mp = {.param_dtype = FSDP_DTYPE_BF16, .no_cast_forward_inputs = true};
    model m;
    outcome o;
    ASSERT_OK(model_open(t->group, &mp, NULL, &m));
    ASSERT_ERROR(run(&m, true, false, &o), FSDP_ERR_INVALID, "x is float32 but w is bfloat16");
    model_close(&m);
}

TEST_RANKS(tables_keep_their_dtype, 2)
{
    const fsdp_mp_policy mp = {
        .param_dtype = FSDP_DTYPE_BF16, .set_output_dtype = true, .output_dtype = FSDP_DTYPE_F16};
    model m;
    outcome o;
    ASSERT_OK(model_open(t->group, &mp, NULL, &m));
    ASSERT_OK(run(&m, true, true, &o));
    ASSERT_INT(probe_of(m.root)->seen_table, FSDP_DTYPE_F32);
    ASSERT_INT(o.table_dtype, FSDP_DTYPE_F32);
    ASSERT_INT(o.dtype, FSDP_DTYPE_F16);
    model_close(&m);
}

/* Casting the output to its own dtype changes nothing; casting it to float32 changes no value. */
TEST_RANKS(outputs_are_cast_to_output_dtype, 2)
{
    const fsdp_mp_policy plain = {.param_dtype = FSDP_DTYPE_BF16},
                         wide = {.param_dtype = FSDP_DTYPE_BF16, .set_output_dtype = true},
                         narrow = {.set_output_dtype = true, .output_dtype = FSDP_DTYPE_BF16};
    model m, w, n;
    outcome a, b, c;
    ASSERT_OK(model_open(t->group, &plain, NULL, &m));
    ASSERT_OK(model_open(t->group, &wide, NULL, &w));
    ASSERT_OK(model_open(t->group, &narrow, NULL, &n));
    ASSERT_OK(run(&m, true, false, &a));
    ASSERT_OK(run(&w, true, false, &b));
    ASSERT_OK(run(&n, true, false, &c));
    ASSERT_INT(a.dtype, FSDP_DTYPE_BF16);
    ASSERT_INT(b.dtype, FSDP_DTYPE_F32);
    ASSERT_INT(c.dtype, FSDP_DTYPE_BF16);
    ASSERT(same(&a, &b));
    ASSERT(!same(&a, &c)); /* this one was computed in float32 */
    fsdp_module_set_activation_checkpointing(w.root, true);
    ASSERT_OK(run(&w, true, false, &b));
    ASSERT(same(&a, &b));
    model_close(&m);
    model_close(&w);
    model_close(&n);
}

TEST_RANKS(output_dtype_of_a_wrapped_model_is_the_roots, 2)
{
    static const char *const classes[] = {"Probe", NULL};
    const fsdp_wrap_policy policy = {.transformer_layer_cls = classes};
    const fsdp_fully_shard_options options = {
        .mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .set_output_dtype = true}};
    model m = {0};
    outcome o;
    ASSERT_OK(fsdp_device_create(NULL, &m.device));
    ASSERT_OK(fsdp_tape_create(&m.tape));
    ASSERT_OK(add_probe(NULL, &m.root));
    ASSERT_OK(add_probe(m.root, &m.inner));
    ASSERT_OK(fsdp_auto_wrap(m.root, &policy, t->group, m.device, &options));
    ASSERT_OK(fsdp_module_init(m.root, 3));
    ASSERT_OK(run(&m, true, true, &o));
    ASSERT_INT(probe_of(m.root)->seen_inside, FSDP_DTYPE_BF16);
    ASSERT_INT(o.dtype, FSDP_DTYPE_F32);
    model_close(&m);
}

/* A root in float32 around a unit in half precision, and vice versa. */
TEST_RANKS(nested_units_have_policies_of_their_own, 2)
{
    for (size_t d = 0; d < 4; d++) {
        const fsdp_mp_policy half = {.param_dtype = halves[d % 2],
                                     .set_output_dtype = true,
                                     .output_dtype = FSDP_DTYPE_F32},
                             full = {.param_dtype = FSDP_DTYPE_F32};
        const fsdp_dtype inner = d < 2 ? halves[d % 2] : FSDP_DTYPE_F32;
        model m;
        outcome first, again;
        ASSERT_OK(model_open(t->group, d < 2 ? &full : &half, d < 2 ? &half : &full, &m));
        ASSERT_OK(run(&m, true, true, &first));
        ASSERT_INT(probe_of(m.inner)->seen, inner);
        ASSERT_INT(probe_of(m.root)->seen, d < 2 ? FSDP_DTYPE_F32 : halves[d % 2]);
        ASSERT_INT(first.dtype, FSDP_DTYPE_F32);
        for (int which = 0; which < 3; which++) {
            fsdp_module_set_activation_checkpointing(m.inner, which != 1);
            fsdp_module_set_activation_checkpointing(m.root, which != 0);
            ASSERT_OK(run(&m, true, true, &again));
            ASSERT(same(&first, &again));
        }
        model_close(&m);
    }
}

TEST_RANKS(gradients_are_rounded_to_float16_once, 2)
{
    const fsdp_mp_policy f32 = {0}, rounded = {.reduce_dtype = FSDP_DTYPE_F16};
    model m, r;
    outcome a, b;
    ASSERT_OK(model_open(t->group, &f32, NULL, &m));
    ASSERT_OK(model_open(t->group, &rounded, NULL, &r));
    ASSERT_OK(run(&m, true, false, &a));
    ASSERT_OK(run(&r, true, false, &b));
    ASSERT(memcmp(a.y, b.y, sizeof a.y) == 0);
    for (int i = 0; i < (t->rank ? 3 : 4) * WIDTH; i++)
        ASSERT_F32(b.dw[i], fsdp_f32_from_f16(fsdp_f16_from_f32(a.dw[i])));
    ASSERT(memcmp(a.dw, b.dw, sizeof a.dw) != 0);
    model_close(&m);
    model_close(&r);
}

TEST(dtypes_that_are_none_are_refused_by_field)
{
    static const struct {
        fsdp_mp_policy mp;
        const char *message;
    } cases[] = {
        {{.param_dtype = FSDP_DTYPE_F64}, "mp_policy: param_dtype float64"},
        {{.reduce_dtype = FSDP_DTYPE_I32}, "mp_policy: reduce_dtype int32"},
        {{.output_dtype = FSDP_DTYPE_I64}, "mp_policy: output_dtype int64"},
        {{.buffer_dtype = FSDP_DTYPE_U8}, "mp_policy: buffer_dtype uint8"},
        {{.master_dtype = FSDP_DTYPE_F16}, "mp_policy: master_dtype float16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m;
        ASSERT_ERROR(model_open(NULL, &cases[i].mp, NULL, &m), FSDP_ERR_UNSUPPORTED,
                     cases[i].message);
        model_close(&m);
    }
}

/* --- FSDP1 --- */

static fsdp_dtype seen_by(fsdp_test *t, const fsdp_mixed_precision *mp, bool inner)
{
    fsdp_mp_policy policy;
    model m;
    outcome o;
    fsdp_status status = fsdp_mp_policy_from_fsdp1(mp, FSDP_DTYPE_F32, &policy);
    if (status == FSDP_OK)
        status = model_open(t->group, &policy, &policy, &m);
    if (status == FSDP_OK)
        status = run(&m, false, true, &o);
    fsdp_dtype seen = status == FSDP_OK ? probe_of(inner ? m.inner : m.root)->seen : FSDP_DTYPE_U8;
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    model_close(&m);
    return seen;
}

/* The inner unit gets float32 inputs from a root that does not cast. */
TEST_RANKS(fsdp1_casts_what_is_given, 2)
{
    const fsdp_mixed_precision none = {0},
                               both = {.set_param_dtype = true,
                                       .param_dtype = FSDP_DTYPE_BF16,
                                       .cast_forward_inputs = true,
                                       .no_cast_root_forward_inputs = true},
                               root_alone = {.set_param_dtype = true,
                                             .param_dtype = FSDP_DTYPE_BF16};
    fsdp_mp_policy policy;
    ASSERT_INT(seen_by(t, &none, false), FSDP_DTYPE_F32);
    ASSERT_INT(seen_by(t, &none, true), FSDP_DTYPE_F32);
    ASSERT_INT(seen_by(t, &root_alone, false), FSDP_DTYPE_BF16);
    ASSERT_INT(seen_by(t, &both, false), FSDP_DTYPE_BF16);
    ASSERT_OK(fsdp_mp_policy_from_fsdp1(&root_alone, FSDP_DTYPE_F32, &policy));
    ASSERT_INT(policy.reduce_dtype, FSDP_DTYPE_BF16); /* default: param_dtype */
    policy.cast_root_forward_inputs = false;
    model m;
    outcome o;
    ASSERT_OK(model_open(t->group, &policy, NULL, &m));
    ASSERT_ERROR(run(&m, false, true, &o), FSDP_ERR_INVALID, "x is float32 but w is bfloat16");
    model_close(&m);
    /* cast_root_forward_inputs applies only to the outermost unit. */
    policy.cast_root_forward_inputs = true;
    ASSERT_OK(model_open(t->group, &(fsdp_mp_policy){0}, &policy, &m));
    ASSERT_ERROR(run(&m, false, true, &o), FSDP_ERR_INVALID, "x is float32 but w is bfloat16");
    model_close(&m);
}

/* The model's input is bfloat16. Each case gives the dtype of the x that the root's forward gets,
 * and whether the root's weights have the same dtype. */
TEST_RANKS(fsdp1_casts_a_bfloat16_input_only_on_request, 2)
{
    static const struct {
        fsdp_mixed_precision mp;
        fsdp_dtype seen;
        bool fits;
    } cases[] = {
        {{0},
         FSDP_DTYPE_BF16,
         false}, /* cast_root_forward_inputs is true, but there is no dtype to cast to */
        {{.cast_forward_inputs = true}, FSDP_DTYPE_BF16, false},
        {{.set_reduce_dtype = true, .set_buffer_dtype = true}, FSDP_DTYPE_BF16, false},
        {{.set_param_dtype = true}, FSDP_DTYPE_F32, true},
        {{.set_param_dtype = true, .no_cast_root_forward_inputs = true}, FSDP_DTYPE_BF16, false},
        {{.set_param_dtype = true,
          .no_cast_root_forward_inputs = true,
          .cast_forward_inputs = true},
         FSDP_DTYPE_F32,
         true},
        {{.set_param_dtype = true, .param_dtype = FSDP_DTYPE_BF16}, FSDP_DTYPE_BF16, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_mp_policy policy;
        model m;
        outcome o;
        ASSERT_OK(fsdp_mp_policy_from_fsdp1(&cases[i].mp, FSDP_DTYPE_F32, &policy));
        ASSERT_OK(model_open(t->group, &policy, NULL, &m));
        m.input = FSDP_DTYPE_BF16;
        if (cases[i].fits)
            ASSERT_OK(run(&m, false, true, &o));
        else
            ASSERT_ERROR(run(&m, false, true, &o), FSDP_ERR_INVALID,
                         "x is bfloat16 but w is float32");
        ASSERT_INT(probe_of(m.root)->seen, cases[i].seen);
        model_close(&m);
    }
}

/* The buffer_dtype of the outermost unit applies in all modules below it, also in recomputation. */
TEST_RANKS(buffer_dtype_is_the_roots_and_of_buffers_alone, 2)
{
    const fsdp_mixed_precision given = {.set_buffer_dtype = true, .buffer_dtype = FSDP_DTYPE_F16},
                               none = {0};
    for (int i = 0; i < 3; i++) {
        fsdp_mp_policy root, inner;
        model m;
        outcome o;
        ASSERT_OK(fsdp_mp_policy_from_fsdp1(i == 1 ? &none : &given, FSDP_DTYPE_F32, &root));
        ASSERT_OK(fsdp_mp_policy_from_fsdp1(i == 1 ? &given : &none, FSDP_DTYPE_F32, &inner));
        ASSERT_OK(model_open(t->group, &root, &inner, &m));
        fsdp_module_set_activation_checkpointing(m.inner, i == 2);
        ASSERT_OK(run(&m, true, false, &o));
        const fsdp_dtype want = i == 1 ? FSDP_DTYPE_F32 : FSDP_DTYPE_F16;
        ASSERT_INT(probe_of(m.root)->seen_buffers, want);
        ASSERT_INT(probe_of(m.inner)->seen_buffers, want);
        /* Inputs are not cast to buffer_dtype. */
        ASSERT_INT(probe_of(m.inner)->seen, FSDP_DTYPE_F32);
        ASSERT_INT(o.dtype, FSDP_DTYPE_F32);
        model_close(&m);
    }
}

TEST(fsdp1_names_what_it_cannot)
{
    fsdp_mp_policy policy;
    ASSERT_ERROR(
        fsdp_mp_policy_from_fsdp1(&(fsdp_mixed_precision){.keep_low_precision_grads = true},
                                  FSDP_DTYPE_F32, &policy),
        FSDP_ERR_UNSUPPORTED, "keep_low_precision_grads");
    ASSERT_ERROR(fsdp_mp_policy_from_fsdp1(&(fsdp_mixed_precision){.set_reduce_dtype = true,
                                                                   .reduce_dtype = FSDP_DTYPE_F64},
                                           FSDP_DTYPE_F32, &policy),
                 FSDP_ERR_UNSUPPORTED, "reduce_dtype float64");
    fsdp_mixed_precision mp;
    ASSERT_ERROR(fsdp_mixed_precision_preset("bf16", &mp), FSDP_ERR_INVALID,
                 "bfSixteen, fpSixteen");
}

TEST(presets_are_the_tutorials)
{
    static const struct {
        const char *name;
        fsdp_dtype param, reduce, buffer;
    } cases[] = {
        {"bfSixteen", FSDP_DTYPE_BF16, FSDP_DTYPE_BF16, FSDP_DTYPE_BF16},
        {"fpSixteen", FSDP_DTYPE_F16, FSDP_DTYPE_F16, FSDP_DTYPE_F16},
        {"fp32_policy", FSDP_DTYPE_F32, FSDP_DTYPE_F32, FSDP_DTYPE_F32},
        {"grad_bf16", FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fsdp_mixed_precision mp;
        fsdp_mp_policy policy;
        ASSERT_OK(fsdp_mixed_precision_preset(cases[i].name, &mp));
        ASSERT_OK(fsdp_mp_policy_from_fsdp1(&mp, FSDP_DTYPE_F32, &policy));
        ASSERT_INT(policy.param_dtype, cases[i].param);
        ASSERT_INT(policy.reduce_dtype, cases[i].reduce);
        ASSERT_INT(policy.buffer_dtype, cases[i].buffer);
        ASSERT_INT(policy.master_dtype, FSDP_DTYPE_F32);
        ASSERT(policy.no_cast_forward_inputs);
        ASSERT_INT(policy.cast_root_forward_inputs, mp.set_param_dtype);
    }
}
