/* See evaluate.h. */
#include "src/text/jinja/evaluate.h"

#include <string.h>

#include "src/text/jinja/attribute.h"
#include "src/text/jinja/filters.h"
#include "src/text/jinja/functions.h"
#include "src/text/jinja/iterate.h"
#include "src/text/jinja/methods.h"
#include "src/text/jinja/print.h"

fsdp_status fsdp_jinja_locate(jinja_machine *machine, const jinja_node *node, fsdp_status status)
{
    if (status != FSDP_OK && !machine->located) {
        fsdp_error_context(status, "line %d", node->line);
        machine->located = true;
    }
    return status;
}

jinja_value *fsdp_jinja_slot(const jinja_machine *machine, jinja_slot slot)
{
    const jinja_activation *activation = machine->activation;
    for (uint32_t i = 0; i < slot.hops; i++)
        activation = activation->outer;
    return &activation->slots[slot.index];
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The arguments of a call, as far as they have been evaluated. */
typedef struct collected {
    jinja_value values; /* a list */
    jinja_keyword *keywords;
    size_t n_keywords, cap;
} collected;

static fsdp_status add_keyword(jinja_machine *machine, collected *c, const jinja_string *name,
                               jinja_value value)
{
    FSDP_TRY(fsdp_jinja_charge(machine, 1 + c->n_keywords / 4));
    for (size_t i = 0; i < c->n_keywords; i++)
        if (c->keywords[i].name->bytes == name->bytes &&
            memcmp(c->keywords[i].name->data, name->data, name->bytes) == 0)
            return fsdp_error(FSDP_ERR_INVALID, "two values for the argument '%.*s'",
                              fsdp_jinja_shown(name), name->data);
    if (c->n_keywords == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 8;
        jinja_keyword *keywords;
        FSDP_TRY(fsdp_jinja_alloc(machine, cap * sizeof *keywords, &keywords));
        if (c->n_keywords)
            memcpy(keywords, c->keywords, c->n_keywords * sizeof *keywords);
        c->keywords = keywords;
        c->cap = cap;
    }
    c->keywords[c->n_keywords++] = (jinja_keyword){name, value};
    return FSDP_OK;
}

/* Add the items of the list that a call passes as *args. */
static fsdp_status add_more(jinja_machine *machine, collected *c, const jinja_node *more)
{
    jinja_value values, list;
    FSDP_TRY(fsdp_jinja_evaluate(machine, more, &values));
    FSDP_TRY(fsdp_jinja_to_list(machine, values, &list));
    for (size_t i = 0; i < list.as.list->n; i++)
        FSDP_TRY(fsdp_jinja_list_add(machine, c->values.as.list, list.as.list->items[i]));
    return FSDP_OK;
}

/* Add the entries of the dict that a call passes as **kwargs. */
static fsdp_status add_more_keywords(jinja_machine *machine, collected *c, const jinja_node *more)
{
    jinja_value mapping;
    FSDP_TRY(fsdp_jinja_evaluate(machine, more, &mapping));
    if (mapping.kind != JINJA_DICT)
        return fsdp_error(FSDP_ERR_INVALID, "the argument after ** must be a mapping, not %s",
                          fsdp_jinja_type_name(mapping));
    for (size_t i = 0; i < mapping.as.dict->n; i++) {
        const jinja_entry *entry = &mapping.as.dict->entries[i];
        if (entry->key.kind != JINJA_STRING)
            return fsdp_error(FSDP_ERR_INVALID, "keywords must be strings");
        FSDP_TRY(add_keyword(machine, c, entry->key.as.string, entry->value));
    }
    return FSDP_OK;
}

static fsdp_status collect(jinja_machine *machine, const jinja_call *call,
                           const jinja_keyword *extra, jinja_args *args)
{
    collected c = {.keywords = NULL};
    jinja_value value;
    FSDP_TRY(fsdp_jinja_list(machine, call->positional.n, &c.values));
    for (size_t i = 0; i < call->positional.n; i++) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, call->positional.items[i], &value));
        FSDP_TRY(fsdp_jinja_list_add(machine, c.values.as.list, value));
    }
    if (call->more)
        FSDP_TRY(add_more(machine, &c, call->more));
    for (size_t i = 0; i < call->keywords.n; i++) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, call->keywords.items[i], &value));
        FSDP_TRY(add_keyword(machine, &c, call->names[i], value));
    }
    if (extra)
        FSDP_TRY(add_keyword(machine, &c, extra->name, extra->value));
    if (call->more_keywords)
        FSDP_TRY(add_more_keywords(machine, &c, call->more_keywords));
    *args = (jinja_args){c.values.as.list->items, c.values.as.list->n, c.keywords, c.n_keywords};
    return FSDP_OK;
}

static fsdp_status call_value(jinja_machine *machine, jinja_value callee, const jinja_args *args,
                              jinja_value *out)
{
    switch (callee.kind) {
    case JINJA_MACRO:
        return machine->call_macro(machine, callee.as.macro, args, out);
    case JINJA_METHOD:
        if (callee.as.method->entry->call)
            return callee.as.method->entry->call(machine, callee.as.method->self, args, out);
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the method '%s' of %s is not supported",
                          callee.as.method->entry->name,
                          fsdp_jinja_type_name(callee.as.method->self));
    case JINJA_FUNCTION:
        if (callee.as.function->call)
            return callee.as.function->call(machine, args, out);
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "the function '%s' is not supported",
                          callee.as.function->name);
    case JINJA_LOOP:
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "recursive loops are not supported");
    case JINJA_UNDEFINED:
        return fsdp_jinja_undefined_error(callee);
    default:
        return fsdp_error(FSDP_ERR_INVALID, "'%s' object is not callable",
                          fsdp_jinja_type_name(callee));
    }
}

fsdp_status fsdp_jinja_evaluate_call(jinja_machine *machine, const jinja_node *node,
                                     const jinja_keyword *extra, jinja_value *out)
{
    jinja_value callee;
    jinja_args args;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &callee));
    FSDP_TRY(collect(machine, node->as.call, extra, &args));
    return call_value(machine, callee, &args, out);
}

static fsdp_status evaluate_filter(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value value = machine->captured;
    jinja_args args;
    if (!node->function.filter)
        return fsdp_error(FSDP_ERR_FORMAT, "no filter named '%.*s'", fsdp_jinja_shown(node->name),
                          node->name->data);
    if (node->a)
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    FSDP_TRY(collect(machine, node->as.call, NULL, &args));
    return fsdp_jinja_call_filter(machine, node->function.filter, value, &args, out);
}

static fsdp_status evaluate_test(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value value;
    jinja_args args;
    bool result = false;
    if (!node->function.test)
        return fsdp_error(FSDP_ERR_FORMAT, "no test named '%.*s'", fsdp_jinja_shown(node->name),
                          node->name->data);
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    FSDP_TRY(collect(machine, node->as.call, NULL, &args));
    FSDP_TRY(fsdp_jinja_call_test(machine, node->function.test, value, &args, &result));
    *out = jinja_bool(result);
    return FSDP_OK;
}

/* ---- lists, dicts, parts of values ----------------------------------------------------------- */

static fsdp_status evaluate_list(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value list, item;
    FSDP_TRY(fsdp_jinja_list(machine, node->items.n, &list));
    for (size_t i = 0; i < node->items.n; i++) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i], &item));
        FSDP_TRY(fsdp_jinja_list_add(machine, list.as.list, item));
    }
    list.kind = node->type == JINJA_NODE_TUPLE ? JINJA_TUPLE : JINJA_LIST;
    *out = list;
    return FSDP_OK;
}

static fsdp_status evaluate_dict(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value dict, key, value;
    FSDP_TRY(fsdp_jinja_dict(machine, &dict));
    for (size_t i = 0; i < node->items.n; i += 2) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i], &key));
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i + 1], &value));
        FSDP_TRY(fsdp_jinja_dict_set(machine, dict.as.dict, key, value));
    }
    *out = dict;
    return FSDP_OK;
}

static fsdp_status evaluate_slice(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value value, bounds[3] = {{.kind = JINJA_MISSING}};
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    for (int i = 0; i < 3; i++) {
        bounds[i] = (jinja_value){.kind = JINJA_MISSING};
        if (node->items.items[i])
            FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i], &bounds[i]));
    }
    return fsdp_jinja_slice(machine, value, bounds[0], bounds[1], bounds[2], out);
}

static fsdp_status evaluate_item(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value value, key;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->b, &key));
    return fsdp_jinja_get_item(machine, value, key, out);
}

static fsdp_status evaluate_attribute(jinja_machine *machine, const jinja_node *node,
                                      jinja_value *out)
{
    jinja_value value, name;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    /* Several threads use the tree, so node->name must not be changed (fsdp_jinja_chars() caches a
     * count in it). The machine gets a string of its own. */
    FSDP_TRY(fsdp_jinja_substring(machine, node->name->data, node->name->bytes, &name));
    return fsdp_jinja_get_attribute(machine, value, name.as.string, out);
}

/* ---- operators ------------------------------------------------------------------------------- */

static fsdp_status compare_values(jinja_machine *machine, jinja_compare compare, jinja_value a,
                                  jinja_value b, bool *result)
{
    int order = 0;
    if (compare == JINJA_IN || compare == JINJA_NOT_IN) {
        FSDP_TRY(fsdp_jinja_contains(machine, b, a, result));
        *result = *result == (compare == JINJA_IN);
        return FSDP_OK;
    }
    if (compare == JINJA_EQ || compare == JINJA_NE) {
        FSDP_TRY(fsdp_jinja_equal(machine, a, b, result));
        *result = *result == (compare == JINJA_EQ);
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_jinja_order(machine, a, b, &order));
    *result = order != 2 && (compare == JINJA_LT   ? order < 0
                             : compare == JINJA_LE ? order <= 0
                             : compare == JINJA_GT ? order > 0
                                                   : order >= 0);
    return FSDP_OK;
}

/* Evaluate a chain of comparisons: a < b < c means a < b and b < c. */
static fsdp_status evaluate_compare(jinja_machine *machine, const jinja_node *node,
                                    jinja_value *out)
{
    jinja_value left, right;
    bool result = true;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &left));
    for (size_t i = 0; result && i < node->items.n; i++) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i], &right));
        FSDP_TRY(compare_values(machine, node->as.compares[i], left, right, &result));
        left = right;
    }
    *out = jinja_bool(result);
    return FSDP_OK;
}

static fsdp_status evaluate_concat(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value all, item;
    FSDP_TRY(fsdp_jinja_substring(machine, "", 0, &all));
    for (size_t i = 0; i < node->items.n; i++) {
        FSDP_TRY(fsdp_jinja_evaluate(machine, node->items.items[i], &item));
        FSDP_TRY(fsdp_jinja_str(machine, item, &item));
        if (i == 0)
            all = item;
        else
            FSDP_TRY(fsdp_jinja_concat(machine, all.as.string, item.as.string, &all));
    }
    *out = all;
    return FSDP_OK;
}

static fsdp_status evaluate_unary(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    jinja_value value;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &value));
    if (node->type == JINJA_NODE_NOT) {
        *out = jinja_bool(!fsdp_jinja_truth(value));
        return FSDP_OK;
    }
    return fsdp_jinja_negate(value, node->type == JINJA_NODE_PLUS, out);
}

static fsdp_status evaluate_operate(jinja_machine *machine, const jinja_node *node,
                                    jinja_value *out)
{
    jinja_value a, b;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, &a));
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->b, &b));
    return fsdp_jinja_operate(machine, node->as.op, a, b, out);
}

static fsdp_status evaluate_condition(jinja_machine *machine, const jinja_node *node,
                                      jinja_value *out)
{
    jinja_value test;
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->b, &test));
    if (fsdp_jinja_truth(test))
        return fsdp_jinja_evaluate(machine, node->a, out);
    if (node->c)
        return fsdp_jinja_evaluate(machine, node->c, out);
    return fsdp_jinja_undefined_hint(machine, "the inline if-expression was false and has no else",
                                     out);
}

static fsdp_status evaluate_logic(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    FSDP_TRY(fsdp_jinja_evaluate(machine, node->a, out));
    if (fsdp_jinja_truth(*out) == (node->type == JINJA_NODE_OR))
        return FSDP_OK;
    return fsdp_jinja_evaluate(machine, node->b, out);
}

static fsdp_status evaluate_name(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    *out = *fsdp_jinja_slot(machine, node->slot);
    return out->kind == JINJA_MISSING
               ? fsdp_jinja_undefined(machine, JINJA_MISSING, node->name, out)
               : FSDP_OK;
}

static fsdp_status evaluate_node(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    switch (node->type) {
    case JINJA_NODE_CONSTANT:
        *out = node->constant;
        return FSDP_OK;
    case JINJA_NODE_NAME:
        return evaluate_name(machine, node, out);
    case JINJA_NODE_LIST:
    case JINJA_NODE_TUPLE:
        return evaluate_list(machine, node, out);
    case JINJA_NODE_DICT:
        return evaluate_dict(machine, node, out);
    case JINJA_NODE_ATTRIBUTE:
        return evaluate_attribute(machine, node, out);
    case JINJA_NODE_ITEM:
        return evaluate_item(machine, node, out);
    case JINJA_NODE_SLICE:
        return evaluate_slice(machine, node, out);
    case JINJA_NODE_CALL:
        return fsdp_jinja_evaluate_call(machine, node, NULL, out);
    case JINJA_NODE_FILTER:
        return evaluate_filter(machine, node, out);
    case JINJA_NODE_TEST:
        return evaluate_test(machine, node, out);
    case JINJA_NODE_OPERATE:
        return evaluate_operate(machine, node, out);
    case JINJA_NODE_NEGATE:
    case JINJA_NODE_PLUS:
    case JINJA_NODE_NOT:
        return evaluate_unary(machine, node, out);
    case JINJA_NODE_AND:
    case JINJA_NODE_OR:
        return evaluate_logic(machine, node, out);
    case JINJA_NODE_COMPARE:
        return evaluate_compare(machine, node, out);
    case JINJA_NODE_CONCAT:
        return evaluate_concat(machine, node, out);
    case JINJA_NODE_CONDITION:
        return evaluate_condition(machine, node, out);
    default:
        return fsdp_error(FSDP_ERR_STATE, "a statement where an expression is expected");
    }
}

fsdp_status fsdp_jinja_evaluate(jinja_machine *machine, const jinja_node *node, jinja_value *out)
{
    fsdp_status status = fsdp_jinja_charge(machine, 1);
    if (status == FSDP_OK)
        status = fsdp_jinja_descend(machine);
    if (status == FSDP_OK) {
        status = evaluate_node(machine, node, out);
        machine->depth--;
    }
    return fsdp_jinja_locate(machine, node, status);
}
