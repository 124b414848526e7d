/* adamw and sgd against torch.optim: tests/golden/optim has five steps of a matrix and a vector
 * with several sets of options. The second gradient is large, and one row or element of each
 * gradient is tiny. */
#include <fsdp/ckpt.h>

#include "src/base/json.h"
#include "tests/kernels/operands.h"

enum {
    STEPS = 5,
    MAX_ELEMENTS = 64
};

/* Copies the array `unit`.`name` of exactly n float32 values. */
static void read_array(fsdp_test *t, const fsdp_safetensors *file, const char *unit,
                       const char *name, float *values, int64_t n)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", unit, name);
    const fsdp_checkpoint_entry *entry = fsdp_safetensors_find(file, key);
    if (!entry || entry->bytes != (size_t)n * sizeof *values)
        FAIL("%s: not there, or not %lld values", key, (long long)n);
    memcpy(values, entry->data, entry->bytes);
}

/* The bound of golden tests: 2e-6 of the largest magnitude. */
static void compare(fsdp_test *t, const float *got, const float *want, int64_t n, const char *unit,
                    const char *what)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 2e-6 * largest))
            FAIL("%s.%s: element %lld: %.9g, not %.9g", unit, what, (long long)i, (double)got[i],
                 (double)want[i]);
}

typedef struct state {
    float param[MAX_ELEMENTS], exp_avg[MAX_ELEMENTS], exp_avg_sq[MAX_ELEMENTS];
    float momentum[MAX_ELEMENTS];
} state;

static double option(fsdp_json_node unit, const char *key)
{
    double value = 0.0;
    return fsdp_json_opt_f64(unit, key, 0.0, &value) == FSDP_OK ? value : 0.0;
}

static void one_step(const variant *v, fsdp_json_node unit, bool adam, bool decoupled, state *s,
                     const float *grad, int64_t n, int step)
{
    double beta1 = 0.0, beta2 = 0.0;
    bool nesterov = false;
    if (adam && (fsdp_json_get_f64(fsdp_json_at(fsdp_json_find(unit, "betas"), 0), NULL, &beta1) ||
                 fsdp_json_get_f64(fsdp_json_at(fsdp_json_find(unit, "betas"), 1), NULL, &beta2)))
        return;
    if (!adam && fsdp_json_opt_bool(unit, "nesterov", false, &nesterov) != FSDP_OK)
        return;
    if (adam)
        v->k->adamw(v->c,
                    &(fsdp_adamw_args){.n = n,
                                       .param = s->param,
                                       .exp_avg = s->exp_avg,
                                       .exp_avg_sq = s->exp_avg_sq,
                                       .grad = grad,
                                       .lr = option(unit, "lr"),
                                       .beta1 = beta1,
                                       .beta2 = beta2,
                                       .eps = option(unit, "eps"),
                                       .weight_decay = option(unit, "weight_decay"),
                                       .decoupled = decoupled,
                                       .step = step,
                                       .grad_scale = 1.0f},
                    1, NULL);
    else
        v->k->sgd(v->c,
                  &(fsdp_sgd_args){.n = n,
                                   .param = s->param,
                                   .momentum_buffer =
                                       option(unit, "momentum") != 0.0 ? s->momentum : NULL,
                                   .grad = grad,
                                   .lr = option(unit, "lr"),
                                   .momentum = option(unit, "momentum"),
                                   .weight_decay = option(unit, "weight_decay"),
                                   .nesterov = nesterov,
                                   .first = step == 1,
                                   .grad_scale = 1.0f},
                  1, NULL);
}

/* Runs the five steps of unit `unit` on `part` ("matrix" or "vector") and compares the parameters
 * after each step, and the state at the end. */
static void check_unit(fsdp_test *t, const variant *v, const fsdp_safetensors *file,
                       fsdp_json_node unit, const char *part, int64_t n)
{
    char name[64];
    const char *class = NULL;
    state s;
    float grads[STEPS * MAX_ELEMENTS], params[STEPS * MAX_ELEMENTS], want[MAX_ELEMENTS];
    memset(&s, 0, sizeof s);
    ASSERT_OK(fsdp_json_get_str(unit, "class", &class));
    bool adam = strncmp(class, "Adam", 4) == 0;
    for (int64_t i = 0; i < MAX_ELEMENTS; i++)
        s.momentum[i] = NAN; /* the first step must not read it */
    snprintf(name, sizeof name, "%s.params", part);
    read_array(t, file, part, "start", s.param, n);
    read_array(t, file, part, "grads", grads, STEPS * n);
    read_array(t, file, unit.key, name, params, STEPS * n);
    CHECK_HERE();
    for (int step = 0; step < STEPS; step++) {
        one_step(v, unit, adam, strcmp(class, "AdamW") == 0, &s, grads + step * n, n, step + 1);
        compare(t, s.param, params + step * n, n, unit.key, name);
        CHECK_HERE();
    }
    struct {
        const char *name;
        const float *got;
        bool there;
    } states[] = {{"exp_avg", s.exp_avg, adam},
                  {"exp_avg_sq", s.exp_avg_sq, adam},
                  {"momentum_buffer", s.momentum, option(unit, "momentum") != 0.0}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        if (!states[i].there)
            continue;
        snprintf(name, sizeof name, "%s.state.%s", part, states[i].name);
        read_array(t, file, unit.key, name, want, n);
        CHECK_HERE();
        compare(t, states[i].got, want, n, unit.key, name);
        CHECK_HERE();
    }
}

TEST(adamw_adam_and_sgd_give_torchs_numbers)
{
    fsdp_safetensors *file = NULL;
    fsdp_json *options = NULL;
    int units = 0;
    variants v = variants_open(t);
    CHECK_HERE();
    ASSERT_OK(fsdp_safetensors_open(fsdp_test_path("golden/optim/optim.safetensors"), &file));
    ASSERT_OK(fsdp_json_read(fsdp_test_path("golden/optim/optim.json"), &options));
    for (fsdp_json_node unit = fsdp_json_first(fsdp_json_root(options)); unit.value;
         unit = fsdp_json_next(unit)) {
        if (strncmp(unit.key, "adafactor", 9) == 0) /* not a kernel */
            continue;
        units++;
        for (int j = 0; j < v.n; j++) {
            check_unit(t, &v.at[j], file, unit, "matrix", 35);
            CHECK_HERE();
            check_unit(t, &v.at[j], file, unit, "vector", 11);
            CHECK_HERE();
        }
    }
    ASSERT_INT(units, 7);
    fsdp_json_destroy(options);
    fsdp_safetensors_close(file);
    variants_close(&v);
}
