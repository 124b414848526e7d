/* See render.h. */
#include "src/text/jinja/render.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/jinja/evaluate.h"
#include "src/text/jinja/functions.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/loop.h"
#include "src/text/jinja/print.h"

/* Why a list of statements ended. */
typedef enum control {
    CONTROL_NORMAL,
    CONTROL_BREAK,
    CONTROL_CONTINUE,
} control;

static fsdp_status run_all(jinja_machine *machine, const jinja_nodes *nodes, control *end);

/* ---- output ---------------------------------------------------------------------------------- */

static fsdp_status write_text(jinja_machine *machine, const char *data, size_t bytes)
{
    fsdp_str *text = &machine->output->text;
    if (bytes > JINJA_MAX_TEXT - text->len)
        return fsdp_error(FSDP_ERR_INVALID, "the template writes more than %d MiB",
                          JINJA_MAX_TEXT >> 20);
    FSDP_TRY(fsdp_jinja_charge(machine, bytes / 16));
    fsdp_str_append(text, data, bytes);
    return text->failed ? fsdp_error_nomem() : FSDP_OK;
}

static fsdp_status write_value(jinja_machine *machine, jinja_value value)
{
    FSDP_TRY(fsdp_jinja_str(machine, value, &value));
    return write_text(machine, value.as.string->data, value.as.string->bytes);
}

/* Run the statements `body`, and set *text to the text that they write, instead of writing it to
 * the output. */
static fsdp_status capture(jinja_machine *machine, const jinja_nodes *body, control *end,
                           jinja_value *text)
{
    jinja_output output = {.outer = machine->output};
    machine->output = &output;
    fsdp_status status = run_all(machine, body, end);
    machine->output = output.outer;
    if (status == FSDP_OK)
        status = fsdp_jinja_string(machine, output.text.data, output.text.len, text);
    fsdp_str_fini(&output.text);
    return status;
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static void resolve_given(const jinja_machine *machine, const jinja_string *name, jinja_value *out)
{
    *out = fsdp_jinja_dict_find(machine->given, name->data, name->bytes);
    if (out->kind != JINJA_MISSING)
        return;
    const jinja_function *function = fsdp_jinja_find_function(name);
    if (function)
        *out = (jinja_value){.kind = JINJA_FUNCTION, .as.function = function};
}

static fsdp_status enter_scope(jinja_machine *machine, const jinja_scope *scope)
{
    jinja_value *slots = machine->activation->slots;
    FSDP_TRY(fsdp_jinja_charge(machine, scope->n));
    for (size_t i = 0; i < scope->n; i++) {
        const jinja_load *load = &scope->loads[i];
        if (load->action == JINJA_LOAD_RESOLVE)
            resolve_given(machine, load->name, &slots[load->slot]);
        else if (load->action == JINJA_LOAD_ALIAS)
            slots[load->slot] = *fsdp_jinja_slot(machine, load->from);
        else if (load->action == JINJA_LOAD_UNDEFINED)
            slots[load->slot] = (jinja_value){.kind = JINJA_MISSING};
    }
    return FSDP_OK;
}

static void leave_scope(jinja_machine *machine, const jinja_scope *scope)
{
    for (size_t i = 0; i < scope->n; i++)
        machine->activation->slots[scope->loads[i].slot] = (jinja_value){.kind = JINJA_MISSING};
}

static fsdp_status new_activation(jinja_machine *machine, jinja_activation *outer, uint32_t n_slots,
                                  jinja_activation **out)
{
    jinja_activation *activation;
    FSDP_TRY(fsdp_jinja_charge(machine, n_slots));
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *activation, &activation));
    FSDP_TRY(fsdp_jinja_alloc(machine, n_slots * sizeof *activation->slots, &activation->slots));
    activation->outer = outer;
    *out = activation;
    return FSDP_OK;
}

/* ---- assignment ------------------------------------------------------------------------------ */

/* Return an error if `target` is an attribute of a value that is not a namespace. As in Jinja2,
 * this is checked before the value to be assigned is evaluated. */
static fsdp_status check_namespaces(const jinja_machine *machine, const jinja_node *target)
{
    if (target->type == JINJA_NODE_ATTRIBUTE &&
        fsdp_jinja_slot(machine, target->a->slot)->kind != JINJA_NAMESPACE)
        return fsdp_error(FSDP_ERR_INVALID,
                          "'%.*s' is not a namespace, so its attributes cannot be "
                          "set",
                          fsdp_jinja_shown(target->a->name), target->a->name->data);
    for (size_t i = 0; target->type == JINJA_NODE_TUPLE && i < target->items.n; i++)
        FSDP_TRY(check_namespaces(machine, target->items.items[i]));
    return FSDP_OK;
}

static fsdp_status assign(jinja_machine *machine, const jinja_node *target, jinja_value value);

static fsdp_status unpack(jinja_machine *machine, const jinja_node *target, jinja_value value)
{
    jinja_value list;
    FSDP_TRY(fsdp_jinja_to_list(machine, value, &list));
    if (list.as.list->n != target->items.n)
        return fsdp_error(FSDP_ERR_INVALID, "%s values to unpack: expected %zu, got %zu",
                          list.as.list->n < target->items.n ? "not enough" : "too many",
                          target->items.n, list.as.list->n);
    for (size_t i = 0; i < target->items.n; i++)
        FSDP_TRY(assign(machine, target->items.items[i], list.as.list->items[i]));
    return FSDP_OK;
}

static fsdp_status assign_attribute(jinja_machine *machine, const jinja_node *target,
                                    jinja_value value)
{
    jinja_value name;
    const jinja_value space = *fsdp_jinja_slot(machine, target->a->slot);
    if (target->name->data[0] == '_')
        return fsdp_error(FSDP_ERR_INVALID,
                          "the name of a namespace's attribute must not begin with '_'");
    FSDP_TRY(fsdp_jinja_substring(machine, target->name->data, target->name->bytes, &name));
    return fsdp_jinja_dict_set(machine, space.as.dict, name, value);
}

static fsdp_status assign(jinja_machine *machine, const jinja_node *target, jinja_value value)
{
    if (target->type == JINJA_NODE_TUPLE)
        return unpack(machine, target, value);
    if (target->type == JINJA_NODE_ATTRIBUTE) {
        FSDP_TRY(check_namespaces(machine, target));
        return assign_attribute(machine, target, value);
    }
    *fsdp_jinja_slot(machine, target->slot) = value;
    return FSDP_OK;
}

static fsdp_status run_set(jinja_machine *machine, const jinja_node *node)
{
    jinja_value value;
    FSDP_TRY(check_namespaces(machine, node->a));
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->b, &value));
    return assign(machine, node->a, value);
}

/* Apply the filters of a set block or filter block to *text, the text of the block. */
static fsdp_status filter_captured(jinja_machine *machine, const jinja_node *filter,
                                   jinja_value *text)
{
    machine->captured = *text;
    return filter ? fsdp_jinja_evaluate(machine, filter, text) : FSDP_OK;
}

static fsdp_status run_set_block(jinja_machine *machine, const jinja_node *node, control *end)
{
    jinja_value text;
    FSDP_TRY(enter_scope(machine, node->as.scope));
    FSDP_TRY(capture(machine, &node->body, end, &text));
    if (*end != CONTROL_NORMAL)
        return FSDP_OK;
    FSDP_TRY(filter_captured(machine, node->b, &text));
    FSDP_TRY(assign(machine, node->a, text));
    leave_scope(machine, node->as.scope);
    return FSDP_OK;
}

static fsdp_status run_filter_block(jinja_machine *machine, const jinja_node *node, control *end)
{
    jinja_value text;
    FSDP_TRY(enter_scope(machine, node->as.scope));
    FSDP_TRY(capture(machine, &node->body, end, &text));
    if (*end != CONTROL_NORMAL)
        return FSDP_OK;
    FSDP_TRY(filter_captured(machine, node->b, &text));
    FSDP_TRY(write_value(machine, text));
    leave_scope(machine, node->as.scope);
    return FSDP_OK;
}

static fsdp_status run_with(jinja_machine *machine, const jinja_node *node, control *end)
{
    jinja_value value;
    FSDP_TRY(enter_scope(machine, node->as.scope));
    for (size_t i = 0; i < node->items.n; i += 2) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i + 1], &value));
        FSDP_TRY(assign(machine, node->items.items[i], value));
    }
    FSDP_TRY(run_all(machine, &node->body, end));
    leave_scope(machine, node->as.scope);
    return FSDP_OK;
}

/* ---- for blocks ------------------------------------------------------------------------------ */

/* The test (`if`) of a for block. It is the state of a generator that yields only the items for
 * which the test is true. */
typedef struct loop_test {
    const jinja_node *node;
    jinja_activation *outer, *own;
} loop_test;

static fsdp_status run_test(jinja_machine *machine, loop_test *test, jinja_value item, bool *passed)
{
    jinja_activation *caller = machine->activation;
    jinja_value result;
    const jinja_for *loop = test->node->as.loop;
    fsdp_status status = FSDP_OK;
    const bool first = !test->own;
    if (first)
        FSDP_TRY(new_activation(machine, test->outer, loop->n_test_slots, &test->own));
    machine->activation = test->own;
    if (first)
        status = enter_scope(machine, &loop->test_scope);
    if (status == FSDP_OK)
        status = assign(machine, loop->test_target, item);
    if (status == FSDP_OK)
        status = fsdp_jinja_evaluate(machine, test->node->c, &result);
    machine->activation = caller;
    if (status == FSDP_OK)
        *passed = fsdp_jinja_truth(result);
    return status;
}

static fsdp_status next_tested(jinja_machine *machine, jinja_iterator *it, jinja_value *item)
{
    for (bool passed = false; !passed;) {
        FSDP_TRY(fsdp_jinja_next(machine, it->inner, item));
        if (item->kind == JINJA_MISSING)
            return FSDP_OK;
        FSDP_TRY(run_test(machine, it->state, *item, &passed));
    }
    return FSDP_OK;
}

static fsdp_status with_test(jinja_machine *machine, const jinja_node *node, jinja_value *items)
{
    jinja_iterator *it;
    loop_test *test;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *test, &test));
    *test = (loop_test){.node = node, .outer = machine->activation};
    FSDP_TRY(fsdp_jinja_iterator(machine, *items, next_tested, &it));
    it->state = test;
    FSDP_TRY(fsdp_jinja_iterate(machine, *items, &it->inner));
    *items = jinja_of_iterator(it);
    return FSDP_OK;
}

/* Run the body of a for block for one item. */
static fsdp_status run_iteration(jinja_machine *machine, const jinja_node *node, jinja_loop *loop,
                                 jinja_value item, control *end)
{
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    FSDP_TRY(assign(machine, node->a, item));
    if (node->as.loop->uses_loop)
        machine->activation->slots[node->as.loop->loop_slot] =
            (jinja_value){.kind = JINJA_LOOP, .as.loop = loop};
    FSDP_TRY(enter_scope(machine, &node->as.loop->body_scope));
    return run_all(machine, &node->body, end);
}

static fsdp_status run_for(jinja_machine *machine, const jinja_node *node, control *end)
{
    jinja_value items, item;
    jinja_loop *loop;
    bool completed = false; /* at least one run of the body ended without break or continue */
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->b, &items));
    if (node->c)
        FSDP_TRY(with_test(machine, node, &items));
    FSDP_TRY(fsdp_jinja_loop_begin(machine, items, &loop));
    for (;;) {
        control how = CONTROL_NORMAL;
        FSDP_TRY(node->as.loop->uses_loop ? fsdp_jinja_loop_next(machine, loop, &item)
                                          : fsdp_jinja_next(machine, loop->items, &item));
        if (item.kind == JINJA_MISSING)
            break;
        FSDP_TRY(run_iteration(machine, node, loop, item, &how));
        completed = completed || how == CONTROL_NORMAL;
        if (how == CONTROL_BREAK)
            break;
    }
    leave_scope(machine, &node->as.loop->body_scope);
    if (completed || !node->otherwise.n)
        return FSDP_OK;
    FSDP_TRY(enter_scope(machine, &node->as.loop->otherwise_scope));
    FSDP_TRY(run_all(machine, &node->otherwise, end));
    leave_scope(machine, &node->as.loop->otherwise_scope);
    return FSDP_OK;
}

static fsdp_status run_if(jinja_machine *machine, const jinja_node *node, control *end)
{
    jinja_value test;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &test));
    if (fsdp_jinja_truth(test))
        return run_all(machine, &node->body, end);
    for (size_t i = 0; i < node->items.n; i++) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i]->a, &test));
        if (fsdp_jinja_truth(test))
            return run_all(machine, &node->items.items[i]->body, end);
    }
    return run_all(machine, &node->otherwise, end);
}

/* ---- macros ---------------------------------------------------------------------------------- */

static fsdp_status make_macro(jinja_machine *machine, const jinja_macro_node *node,
                              jinja_value *out)
{
    jinja_macro *macro;
    FSDP_TRY(fsdp_jinja_alloc(machine, sizeof *macro, &macro));
    *macro = (jinja_macro){.node = node, .outer = machine->activation};
    *out = (jinja_value){.kind = JINJA_MACRO, .as.macro = macro};
    return FSDP_OK;
}

static int index_of_param(const jinja_macro_node *node, const jinja_string *name)
{
    for (size_t i = 0; i < node->params.n; i++)
        if (node->params.items[i]->name->bytes == name->bytes &&
            memcmp(node->params.items[i]->name->data, name->data, name->bytes) == 0)
            return (int)i;
    return -1;
}

static fsdp_status macro_error(const jinja_macro_node *node, const char *what,
                               const jinja_string *detail)
{
    return fsdp_error(FSDP_ERR_INVALID, "the macro '%.*s' %s%.*s",
                      node->name ? fsdp_jinja_shown(node->name) : 6,
                      node->name ? node->name->data : "caller", what,
                      detail ? fsdp_jinja_shown(detail) : 0, detail ? detail->data : "");
}

/* Pass one keyword argument to a macro. It becomes the value of the parameter with this name, or of
 * `caller`, or an entry of `kwargs`. */
static fsdp_status pass_keyword(jinja_machine *machine, const jinja_macro_node *node,
                                const jinja_keyword *keyword, size_t n_positional,
                                jinja_value *slots, jinja_value kwargs)
{
    jinja_value name;
    const int index = index_of_param(node, keyword->name);
    if (index >= 0 && (size_t)index >= n_positional) {
        slots[node->param_slots[index]] = keyword->value;
        return FSDP_OK;
    }
    if (node->caller_slot != UINT32_MAX && fsdp_jinja_string_is(keyword->name, "caller")) {
        slots[node->caller_slot] = keyword->value;
        return FSDP_OK;
    }
    if (node->kwargs_slot == UINT32_MAX)
        return macro_error(node, "takes no keyword argument ", keyword->name);
    FSDP_TRY(fsdp_jinja_substring(machine, keyword->name->data, keyword->name->bytes, &name));
    return fsdp_jinja_dict_set(machine, kwargs.as.dict, name, keyword->value);
}

static fsdp_status pass_arguments(jinja_machine *machine, const jinja_macro_node *node,
                                  const jinja_args *args, jinja_value *slots)
{
    jinja_value kwargs, varargs;
    const size_t n = args->n < node->params.n ? args->n : node->params.n;
    FSDP_TRY(fsdp_jinja_charge(machine, 1 + args->n_keywords * (1 + node->params.n / 4)));
    FSDP_TRY(fsdp_jinja_dict(machine, &kwargs));
    for (size_t i = 0; i < n; i++)
        slots[node->param_slots[i]] = args->values[i];
    for (size_t i = 0; i < args->n_keywords; i++)
        FSDP_TRY(pass_keyword(machine, node, &args->keywords[i], n, slots, kwargs));
    if (node->caller_slot != UINT32_MAX && slots[node->caller_slot].kind == JINJA_MISSING)
        FSDP_TRY(
            fsdp_jinja_undefined_hint(machine, "No caller defined", &slots[node->caller_slot]));
    if (node->kwargs_slot != UINT32_MAX)
        slots[node->kwargs_slot] = kwargs;
    if (args->n > node->params.n && node->varargs_slot == UINT32_MAX)
        return macro_error(node, "got more arguments than it has parameters", NULL);
    if (node->varargs_slot == UINT32_MAX)
        return FSDP_OK;
    FSDP_TRY(fsdp_jinja_list(machine, 0, &varargs));
    for (size_t i = n; i < args->n; i++)
        FSDP_TRY(fsdp_jinja_list_add(machine, varargs.as.list, args->values[i]));
    varargs.kind = JINJA_TUPLE;
    slots[node->varargs_slot] = varargs;
    return FSDP_OK;
}

/* Set the parameters that got no argument to their defaults, in the order of the parameters. */
static fsdp_status fill_defaults(jinja_machine *machine, const jinja_macro_node *node)
{
    const size_t first = node->params.n - node->defaults.n;
    for (size_t i = 0; i < node->params.n; i++) {
        jinja_value *slot = &machine->activation->slots[node->param_slots[i]], value;
        if (slot->kind != JINJA_MISSING)
            continue;
        if (i >= first)
            FSDP_TRY(fsdp_jinja_evaluate(machine, node->defaults.items[i - first], &value));
        else
            FSDP_TRY(
                fsdp_jinja_undefined(machine, JINJA_MISSING, node->params.items[i]->name, &value));
        *slot = value;
    }
    return FSDP_OK;
}

static fsdp_status call_macro(jinja_machine *machine, const jinja_macro *macro,
                              const jinja_args *args, jinja_value *out)
{
    const jinja_macro_node *node = macro->node;
    jinja_activation *caller = machine->activation, *own;
    control end = CONTROL_NORMAL;
    FSDP_TRY(new_activation(machine, macro->outer, node->n_slots, &own));
    FSDP_TRY(pass_arguments(machine, node, args, own->slots));
    FSDP_TRY(fsdp_jinja_descend(machine));
    machine->activation = own;
    fsdp_status status = enter_scope(machine, &node->scope);
    if (status == FSDP_OK)
        status = fill_defaults(machine, node);
    if (status == FSDP_OK)
        status = capture(machine, &node->body, &end, out);
    machine->activation = caller;
    machine->depth--;
    return status;
}

static fsdp_status run_macro(jinja_machine *machine, const jinja_node *node)
{
    jinja_value macro;
    FSDP_TRY(make_macro(machine, node->as.macro, &macro));
    *fsdp_jinja_slot(machine, node->slot) = macro;
    return FSDP_OK;
}

static fsdp_status run_call_block(jinja_machine *machine, const jinja_node *node)
{
    static const jinja_string caller = {.data = "caller", .bytes = 6, .chars = 6};
    jinja_keyword extra = {.name = &caller};
    jinja_value result;
    FSDP_TRY(make_macro(machine, node->as.macro, &extra.value));
    FSDP_TRY(fsdp_jinja_evaluate_call(machine, node->a, &extra, &result));
    return write_value(machine, result);
}

/* Run a {% generation %} block, and add its text to machine->spans. The offset of the text is the
 * length of the text that the template itself has written so far. This is also the offset if the
 * block is in a macro, where it may be wrong; transformers does the same. */
static fsdp_status run_generation(jinja_machine *machine, const jinja_node *node)
{
    const jinja_args none = {0};
    const jinja_output *root = machine->output;
    jinja_value macro, text;
    FSDP_TRY(make_macro(machine, node->as.macro, &macro));
    FSDP_TRY(call_macro(machine, macro.as.macro, &none, &text));
    while (root->outer)
        root = root->outer;
    if (!FSDP_GROW(machine->spans, machine->spans_cap, machine->n_spans + 1))
        return FSDP_ERR_NOMEM;
    machine->spans[machine->n_spans++] = (jinja_span){
        root->text.len, root->text.len + text.as.string->bytes, text.as.string, node->line};
    return write_value(machine, text);
}

/* ---- statements ------------------------------------------------------------------------------ */

static fsdp_status run_print(jinja_machine *machine, const jinja_node *node)
{
    jinja_value value;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    return write_value(machine, value);
}

static fsdp_status run_node(jinja_machine *machine, const jinja_node *node, control *end)
{
    switch (node->type) {
    case JINJA_NODE_DATA:
        return write_text(machine, node->constant.as.string->data, node->constant.as.string->bytes);
    case JINJA_NODE_PRINT:
        return run_print(machine, node);
    case JINJA_NODE_SET:
        return run_set(machine, node);
    case JINJA_NODE_SET_BLOCK:
        return run_set_block(machine, node, end);
    case JINJA_NODE_FOR:
        return run_for(machine, node, end);
    case JINJA_NODE_IF:
        return run_if(machine, node, end);
    case JINJA_NODE_MACRO:
        return run_macro(machine, node);
    case JINJA_NODE_CALL_BLOCK:
        return run_call_block(machine, node);
    case JINJA_NODE_FILTER_BLOCK:
        return run_filter_block(machine, node, end);
    case JINJA_NODE_WITH:
        return run_with(machine, node, end);
    case JINJA_NODE_GENERATION:
        return run_generation(machine, node);
    case JINJA_NODE_BREAK:
        *end = CONTROL_BREAK;
        return FSDP_OK;
    case JINJA_NODE_CONTINUE:
        *end = CONTROL_CONTINUE;
        return FSDP_OK;
    default:
        return fsdp_error(FSDP_ERR_STATE, "an expression where a statement is expected");
    }
}

static fsdp_status run_one(jinja_machine *machine, const jinja_node *node, control *end)
{
    FSDP_TRY(fsdp_jinja_charge(machine, 1));
    FSDP_TRY(fsdp_jinja_descend(machine));
    const fsdp_status status = run_node(machine, node, end);
    machine->depth--;
    return status;
}

static fsdp_status run_all(jinja_machine *machine, const jinja_nodes *nodes, control *end)
{
    for (size_t i = 0; i < nodes->n && *end == CONTROL_NORMAL; i++) {
        const jinja_node *node = nodes->items[i];
        FSDP_TRY(fsdp_jinja_locate(machine, node, run_one(machine, node, end)));
    }
    return FSDP_OK;
}

fsdp_status fsdp_jinja_run(jinja_machine *machine, const jinja_tree *tree, const jinja_dict *given,
                           fsdp_str *text)
{
    jinja_output output = {0};
    control end = CONTROL_NORMAL;
    machine->given = given;
    machine->call_macro = call_macro;
    machine->n_spans = 0;
    fsdp_status status = new_activation(machine, NULL, tree->n_slots, &machine->activation);
    machine->output = &output;
    if (status == FSDP_OK)
        status = enter_scope(machine, &tree->scope);
    if (status == FSDP_OK)
        status = run_all(machine, &tree->body, &end);
    machine->output = NULL;
    *text = output.text;
    return status;
}
