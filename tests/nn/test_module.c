/* The module tree: names, order, finding, sharing, initialization. */
#include <stdio.h>
#include <stdlib.h>

#include <fsdp/dtensor.h>
#include <fsdp/fsdp.h>

#include "src/base/alloc_testing.h"
#include "src/nn/module.h"
#include "tests/test.h"

/* A typical model: an embedding, two blocks in a list, and a head tied to the embedding. */
static fsdp_status build_tied(fsdp_module **root)
{
    fsdp_module *m, *child, *list;
    fsdp_parameter *extra;
    const int64_t width = 3;
    FSDP_TRY(fsdp_module_create("Model", &m));
    *root = m;
    FSDP_TRY(fsdp_module_add_parameter(m, "scale", 1, &width,
                                       (fsdp_init){.mean = 2.0f, .std = 0.0f}, &extra));
    FSDP_TRY(fsdp_embedding_create(5, width, (fsdp_init){.mean = 0.0f, .std = 1.0f}, &child));
    FSDP_TRY(fsdp_module_add_child(m, "shared", child));
    FSDP_TRY(fsdp_module_create("ModuleList", &list));
    FSDP_TRY(fsdp_module_add_child(m, "block", list));
    for (int i = 0; i < 2; i++) {
        char name[16];
        fsdp_module *linear;
        snprintf(name, sizeof name, "%d", i);
        FSDP_TRY(
            fsdp_linear_create(width, 4, i == 1, (fsdp_init){.mean = 0.0f, .std = 0.5f}, &linear));
        FSDP_TRY(fsdp_module_add_child(list, name, linear));
    }
    fsdp_module *head;
    FSDP_TRY(fsdp_module_create("Linear", &head));
    FSDP_TRY(fsdp_module_add_child(m, "lm_head", head));
    return fsdp_module_share_parameter(head, "weight", fsdp_module_parameter(child, "weight"));
}

static fsdp_status append(const char *path, fsdp_module *m, void *arg)
{
    char *text = arg;
    size_t used = strlen(text);
    snprintf(text + used, 512 - used, "%s:%s ", path, fsdp_module_class(m));
    return FSDP_OK;
}

static void join_names(const fsdp_parameter_list *list, char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < list->n; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s ", list->items[i].name);
}

TEST(modules_are_visited_parents_first_in_order_of_insertion)
{
    fsdp_module *m;
    char text[512] = "";
    ASSERT_OK(build_tied(&m));
    ASSERT_OK(fsdp_module_visit(m, append, text));
    ASSERT_STR(text, ":Model shared:Embedding block:ModuleList block.0:Linear block.1:Linear "
                     "lm_head:Linear ");
    fsdp_module_destroy(m);
}

TEST(parameters_are_listed_once_or_under_all_their_names)
{
    fsdp_module *m;
    fsdp_parameter_list list;
    char text[512];
    ASSERT_OK(build_tied(&m));
    ASSERT_OK(fsdp_module_parameters(m, false, &list));
    join_names(&list, text, sizeof text);
    ASSERT_STR(text, "scale shared.weight block.0.weight block.1.weight block.1.bias ");
    fsdp_parameter_list_free(&list);
    ASSERT_OK(fsdp_module_parameters(m, true, &list));
    join_names(&list, text, sizeof text);
    ASSERT_STR(text,
               "scale shared.weight block.0.weight block.1.weight block.1.bias lm_head.weight ");
    ASSERT(list.items[1].parameter == list.items[5].parameter);
    fsdp_parameter_list_free(&list);
    /* In a submodule that has only the second name, the parameter has that name. */
    ASSERT_OK(fsdp_module_parameters(fsdp_module_find(m, "lm_head"), false, &list));
    join_names(&list, text, sizeof text);
    ASSERT_STR(text, "weight ");
    fsdp_parameter_list_free(&list);
    fsdp_module_destroy(m);
}

TEST(modules_are_found_by_their_path_and_nothing_else)
{
    static const char *const wrong[] = {"block.2",  ".",        ".block",         "block.",
                                        "block..0", "block.0.", "block.0.weight", "bloc",
                                        "blocks",   "shared.0", "block.0.1.2"};
    fsdp_module *m;
    ASSERT_OK(build_tied(&m));
    ASSERT(fsdp_module_find(m, "") == m);
    fsdp_module *one = fsdp_module_find(m, "block.1");
    ASSERT(one);
    ASSERT_STR(fsdp_module_name(one), "1");
    ASSERT(fsdp_module_parent(one) == fsdp_module_find(m, "block"));
    ASSERT(!fsdp_module_parent(m));
    ASSERT(fsdp_module_parameter(one, "bias"));
    ASSERT(!fsdp_module_parameter(one, "bia"));
    ASSERT(!fsdp_module_child(m, 3));
    ASSERT(!fsdp_module_child(m, -1));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (fsdp_module_find(m, wrong[i]))
            FAIL("'%s' is found", wrong[i]);
    fsdp_module_destroy(m);
}

TEST(names_are_unique_and_make_paths)
{
    static const char *const wrong[] = {"", ".", "a.b", "scale", "shared"};
    fsdp_module *m, *child;
    const int64_t n = 3;
    ASSERT_OK(build_tied(&m));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ASSERT_OK(fsdp_module_create("Child", &child));
        ASSERT_ERROR(fsdp_module_add_child(m, wrong[i], child), FSDP_ERR_INVALID, "Model");
        ASSERT_ERROR(fsdp_module_add_parameter(m, wrong[i], 1, &n, (fsdp_init){0}, NULL),
                     FSDP_ERR_INVALID, "Model");
    }
    fsdp_module *shared = fsdp_module_find(m, "shared");
    ASSERT_ERROR(fsdp_module_add_child(m, "again", shared), FSDP_ERR_INVALID,
                 "already has a parent");
    ASSERT_ERROR(fsdp_module_add_child(m, "self", m), FSDP_ERR_INVALID, "would be its own child");
    ASSERT_ERROR(fsdp_module_add_child(fsdp_module_find(m, "block.1"), "root", m), FSDP_ERR_INVALID,
                 "'root' would be its own child, or a child of a module below it");
    ASSERT(!fsdp_module_parent(m));
    ASSERT_ERROR(fsdp_module_add_parameter(m, "none", 0, &n, (fsdp_init){0}, NULL),
                 FSDP_ERR_INVALID, "none");
    ASSERT_ERROR(fsdp_module_add_parameter(m, "minus", 1, (int64_t[]){-1}, (fsdp_init){0}, NULL),
                 FSDP_ERR_INVALID, "[-1]");
    ASSERT_ERROR(fsdp_linear_create(-1, 2, true, (fsdp_init){0}, &child), FSDP_ERR_INVALID, "-1");
    fsdp_module_destroy(m);
}

TEST(a_path_too_long_is_an_error_and_gradients_are_still_zeroed)
{
    fsdp_module *root, *m;
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_module_create("M", &root));
    m = root;
    for (int i = 0; i < 100; i++) {
        fsdp_module *child;
        ASSERT_OK(fsdp_module_create("M", &child));
        ASSERT_OK(fsdp_module_add_child(m, "a_long_name", child));
        m = child;
    }
    ASSERT_ERROR(fsdp_module_parameters(root, false, &list), FSDP_ERR_INVALID, "too long");
    fsdp_module_zero_grad(root);
    fsdp_module_destroy(root);
}

static fsdp_status stop_at_two(const char *path, fsdp_module *m, void *arg)
{
    (void)path, (void)m;
    return ++*(int *)arg == 2 ? fsdp_error(FSDP_ERR_STATE, "stopped") : FSDP_OK;
}

TEST(a_visit_stops_at_the_first_failure)
{
    fsdp_module *m;
    int visited = 0;
    ASSERT_OK(build_tied(&m));
    ASSERT_ERROR(fsdp_module_visit(m, stop_at_two, &visited), FSDP_ERR_STATE, "stopped");
    ASSERT_INT(visited, 2);
    fsdp_module_destroy(m);
}

/* --- memory and values --- */

TEST(a_parameter_without_memory_is_an_error_when_it_is_read)
{
    fsdp_module *m;
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(build_tied(&m));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_ERROR(fsdp_module_init(m, 1), FSDP_ERR_STATE, "scale has no memory");
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_read(s, fsdp_module_parameter(m, "scale")));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_STATE, "no memory yet");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    fsdp_module_call1(s, m, NULL);
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "no forward");
    fsdp_scope_close(s);
    fsdp_module_destroy(m);
    fsdp_device_destroy(device);
}

/* The whole values of every parameter after init, in list order. */
typedef struct values {
    float v[64];
    size_t n;
} values;

static fsdp_status init_over(fsdp_group *group, fsdp_dtype master, values *out)
{
    fsdp_module *m;
    fsdp_device *device;
    fsdp_parameter_list list;
    fsdp_fully_shard_options o = {
        .mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .master_dtype = master}};
    FSDP_TRY(build_tied(&m));
    FSDP_TRY(fsdp_device_create(NULL, &device));
    FSDP_TRY(fsdp_fully_shard(fsdp_module_find(m, "block.1"), group, device, &o));
    FSDP_TRY(fsdp_fully_shard(m, group, device, &o));
    FSDP_TRY(fsdp_module_init(m, 42));
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    out->n = 0;
    for (size_t i = 0; i < list.n; i++) {
        fsdp_tensor *full;
        FSDP_TRY(fsdp_full_tensor(fsdp_parameter_local(list.items[i].parameter), &full));
        FSDP_TRY(fsdp_tensor_to_floats(full, out->v + out->n));
        out->n += (size_t)fsdp_tensor_numel(full);
        fsdp_tensor_release(full);
    }
    fsdp_parameter_list_free(&list);
    fsdp_module_destroy(m);
    fsdp_device_destroy(device);
    return FSDP_OK;
}

/* Compares with an unsharded module, and with its values rounded to bfloat16. */
static void init_is_the_same(fsdp_test *t, fsdp_dtype master)
{
    values one, many;
    ASSERT_OK(init_over(NULL, master, &one));
    ASSERT_OK(init_over(t->group, master, &many));
    ASSERT_INT(one.n, 3 + 15 + 12 + 12 + 4);
    ASSERT_INT(many.n, one.n);
    for (size_t i = 0; i < one.n; i++)
        ASSERT_F32(many.v[i], one.v[i]);
    ASSERT_F32(one.v[0], 2.0f);          /* scale, with std 0 */
    ASSERT_F32(one.v[one.n - 1], 0.0f);  /* bias */
    ASSERT(one.v[3] != one.v[4]);        /* random */
    ASSERT(one.v[18] != one.v[18 + 12]); /* block.0 and block.1 differ */
}

TEST_RANKS(element_i_is_initialized_alike_at_2_ranks, 2)
{
    init_is_the_same(t, FSDP_DTYPE_F32);
    init_is_the_same(t, FSDP_DTYPE_BF16);
}

TEST_RANKS(element_i_is_initialized_alike_at_3_ranks, 3)
{
    init_is_the_same(t, FSDP_DTYPE_F32);
    init_is_the_same(t, FSDP_DTYPE_BF16);
}

TEST(init_depends_on_seed_and_name_and_has_the_requested_moments)
{
    enum {
        N = 200
    };
    fsdp_module *m;
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_embedding_create(N, N, (fsdp_init){.mean = 1.0f, .std = 0.5f}, &m));
    ASSERT_OK(fsdp_module_to_empty(m, device));
    const fsdp_tensor *local = fsdp_parameter_local(fsdp_module_parameter(m, "weight"));
    float first = 0.0f;
    for (uint64_t seed = 0; seed < 2; seed++) {
        ASSERT_OK(fsdp_module_init(m, seed));
        const float *v = fsdp_tensor_data(local);
        double sum = 0.0, squares = 0.0;
        for (int i = 0; i < N * N; i++) {
            sum += (double)v[i];
            squares += ((double)v[i] - 1.0) * ((double)v[i] - 1.0);
        }
        /* 40,000 random values: five standard errors. */
        ASSERT_NEAR(sum / (N * N), 1.0, 5 * 0.5 / N);
        ASSERT_NEAR(squares / (N * N), 0.25, 5 * 0.25 * 1.42 / N);
        ASSERT(!seed || v[0] != first);
        first = v[0];
    }
    ASSERT(fsdp_parameter_key(1, "a.weight") != fsdp_parameter_key(1, "b.weight"));
    fsdp_module_destroy(m);
    fsdp_device_destroy(device);
}

TEST(to_empty_keeps_existing_memory_and_works_on_meta)
{
    fsdp_module *m;
    fsdp_device *device, *meta;
    fsdp_memory_stats stats;
    ASSERT_OK(build_tied(&m));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &meta));
    ASSERT_OK(fsdp_module_to_empty(fsdp_module_find(m, "shared"), device));
    ASSERT_OK(fsdp_module_to_empty(m, meta));
    ASSERT_OK(fsdp_module_init(m, 1));
    fsdp_device_memory(meta, &stats);
    ASSERT_INT(stats.tag_allocated[FSDP_TAG_PARAM], 4 * (3 + 12 + 12 + 4));
    const fsdp_parameter *tied = fsdp_module_parameter(fsdp_module_find(m, "lm_head"), "weight");
    ASSERT(fsdp_tensor_has_data(fsdp_parameter_data(tied)));
    ASSERT(!fsdp_tensor_has_data(fsdp_parameter_data(fsdp_module_parameter(m, "scale"))));
    /* Parameters on meta have no values: sharding on the CPU allocates new memory. */
    ASSERT_OK(fsdp_fully_shard(m, NULL, device, NULL));
    ASSERT_OK(fsdp_module_init(m, 1));
    fsdp_module_destroy(m);
    fsdp_device_memory(meta, &stats);
    ASSERT_INT(stats.allocated, 0);
    fsdp_device_memory(device, &stats);
    ASSERT_INT(stats.allocated, 0);
    fsdp_device_destroy(device);
    fsdp_device_destroy(meta);
}

/* Holders of the tensor see its new memory; tied names still share it. */
TEST(to_empty_moves_what_is_on_meta)
{
    fsdp_module *m;
    fsdp_device *device, *meta;
    fsdp_memory_stats stats;
    ASSERT_OK(build_tied(&m));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &meta));
    ASSERT_OK(fsdp_module_to_empty(m, meta));
    const fsdp_parameter *scale = fsdp_module_parameter(m, "scale");
    const fsdp_tensor *held = fsdp_parameter_data(scale);
    ASSERT_OK(fsdp_module_to_empty(m, device));
    ASSERT(fsdp_parameter_data(scale) == held && fsdp_parameter_local(scale) == held);
    ASSERT(fsdp_tensor_has_data(held));
    fsdp_device_memory(meta, &stats);
    ASSERT_INT(stats.allocated, 0);
    fsdp_device_memory(device, &stats);
    ASSERT_INT(stats.tag_allocated[FSDP_TAG_PARAM], 4 * (3 + 15 + 12 + 12 + 4));
    ASSERT_OK(fsdp_module_init(m, 1));
    fsdp_module_destroy(m);
    fsdp_device_destroy(device);
    fsdp_device_destroy(meta);
}

/* Each allocation fails in turn: AddressSanitizer finds leaks. */
TEST(building_survives_every_failing_allocation)
{
    for (long n = 1; n < 1000; n++) {
        fsdp_module *m = NULL;
        fsdp_alloc_fail_at(n);
        fsdp_status status = build_tied(&m);
        fsdp_alloc_fail_at(0);
        fsdp_module_destroy(m);
        if (status == FSDP_OK)
            return;
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    FAIL("building needs more than 1000 allocations");
}

/* --- hooks --- */

static void count_destroyed(fsdp_region_hooks *hooks)
{
    ++*(int *)hooks->self;
}

TEST(hooks_are_destroyed_with_their_module_and_there_are_four_at_most)
{
    fsdp_module *m;
    int destroyed = 0;
    fsdp_region_hooks hooks = {.self = &destroyed};
    ASSERT_OK(fsdp_module_create("M", &m));
    for (int i = 0; i < FSDP_MAX_HOOKS; i++)
        ASSERT_OK(fsdp_module_add_hooks(m, &hooks, i ? count_destroyed : NULL));
    ASSERT_ERROR(fsdp_module_add_hooks(m, &hooks, count_destroyed), FSDP_ERR_STATE, "4 hooks");
    fsdp_module_destroy(m);
    ASSERT_INT(destroyed, FSDP_MAX_HOOKS - 1);
}
