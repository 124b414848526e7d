/* The syntax tree of a template. Its nodes are in the memory of the template.
 *
 * parse.c and parse_expression.c make the tree, symbols.c assigns a slot to each variable, and
 * evaluate.c and render.c run the template. */
#pragma once
#include "src/text/jinja/arithmetic.h"
#include "src/text/jinja/value.h"

/* The types of nodes. The comment of each type says which members of jinja_node it uses, and what
 * they mean. */
typedef enum jinja_node_type {
    /* ---- expressions ---- */
    JINJA_NODE_CONSTANT, /* constant */
    JINJA_NODE_NAME,     /* name, slot */
    JINJA_NODE_LIST,     /* items */
    JINJA_NODE_TUPLE,    /* items */
    JINJA_NODE_DICT,     /* items: key, value, key, value ... */
    /* a.name; on the left side of `set`: the attribute `name` of the variable a */
    JINJA_NODE_ATTRIBUTE,
    JINJA_NODE_ITEM,    /* a[b] */
    JINJA_NODE_SLICE,   /* a[items[0]:items[1]:items[2]]; an item is NULL if the bound is missing */
    JINJA_NODE_CALL,    /* a(call) */
    JINJA_NODE_FILTER,  /* a | filter(call); in a filter block, a is NULL */
    JINJA_NODE_TEST,    /* a is test(call) */
    JINJA_NODE_OPERATE, /* a op b */
    JINJA_NODE_NEGATE,  /* -a */
    JINJA_NODE_PLUS,    /* +a */
    JINJA_NODE_NOT,     /* not a */
    JINJA_NODE_AND,     /* a and b */
    JINJA_NODE_OR,      /* a or b */
    /* a, and then items[i] for each i, with the operator compares[i] before it */
    JINJA_NODE_COMPARE,
    JINJA_NODE_CONCAT,    /* items, joined by ~ */
    JINJA_NODE_CONDITION, /* a if b else c; c may be NULL */
    /* ---- statements ---- */
    JINJA_NODE_DATA,         /* constant */
    JINJA_NODE_PRINT,        /* a */
    JINJA_NODE_SET,          /* a = b */
    JINJA_NODE_SET_BLOCK,    /* a = body; b: a filter, or NULL */
    JINJA_NODE_FOR,          /* for a in b if c: body; otherwise: the else part; loop */
    JINJA_NODE_IF,           /* if a: body; items: the elif nodes; otherwise: the else part */
    JINJA_NODE_MACRO,        /* name; macro */
    JINJA_NODE_CALL_BLOCK,   /* a: the call; macro: the body */
    JINJA_NODE_FILTER_BLOCK, /* b: the filter; body */
    JINJA_NODE_WITH,         /* items: target, value, target, value ...; body */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE,
    JINJA_NODE_GENERATION, /* macro: the body */
} jinja_node_type;

typedef enum jinja_compare {
    JINJA_EQ,
    JINJA_NE,
    JINJA_LT,
    JINJA_LE,
    JINJA_GT,
    JINJA_GE,
    JINJA_IN,
    JINJA_NOT_IN,
} jinja_compare;

/* Where a variable is: in slot `index` of an activation (machine.h). To find this activation, start
 * from the current activation and follow the pointer `outer` `hops` times. */
typedef struct jinja_slot {
    uint32_t hops, index;
} jinja_slot;

typedef enum jinja_load_action {
    JINJA_LOAD_PARAMETER, /* nothing to do: a call or a loop sets the value */
    /* take the value that the caller of the rendering gave for this name, or else the global
     * function with this name */
    JINJA_LOAD_RESOLVE,
    JINJA_LOAD_ALIAS,     /* copy the value of the variable with the same name in an outer scope */
    JINJA_LOAD_UNDEFINED, /* no value yet */
} jinja_load_action;

typedef struct jinja_load {
    jinja_load_action action;
    uint32_t slot;            /* the slot of this variable in the activation */
    jinja_slot from;          /* for JINJA_LOAD_ALIAS: the variable whose value is copied */
    const jinja_string *name; /* for JINJA_LOAD_RESOLVE: the name of the variable */
} jinja_load;

/* A scope (Note [Scopes of a template] in symbols.h). `loads` says how its variables get their
 * values when the scope begins. When the scope ends, the variables lose their values. */
typedef struct jinja_scope {
    jinja_load *loads; /* [n] */
    size_t n;
} jinja_scope;

typedef struct jinja_nodes {
    struct jinja_node **items; /* [n] */
    size_t n, cap;
} jinja_nodes;

/* The arguments of a call. */
typedef struct jinja_call {
    jinja_nodes positional;
    jinja_nodes keywords;             /* the values */
    const jinja_string **names;       /* [keywords.n] */
    struct jinja_node *more;          /* *args, or NULL */
    struct jinja_node *more_keywords; /* **kwargs, or NULL */
} jinja_call;

/* A macro, or the body of a call block or generation block. */
typedef struct jinja_macro_node {
    const jinja_string *name; /* NULL: this is the body of a call block or generation block */
    jinja_nodes params;       /* names */
    jinja_nodes defaults;     /* default values of the last defaults.n parameters */
    jinja_nodes body;
    jinja_scope scope;
    uint32_t n_slots;
    uint32_t *param_slots; /* [params.n] */
    /* Slots of the special variables caller, kwargs and varargs; UINT32_MAX if the body does not
     * use the variable. */
    uint32_t caller_slot, kwargs_slot, varargs_slot;
    int caller_param; /* index of the parameter whose name is `caller`, or -1 if there is none */
} jinja_macro_node;

/* What a for block has in addition to its target and its iterable. */
typedef struct jinja_for {
    jinja_scope body_scope, otherwise_scope, test_scope;
    bool uses_loop;
    uint32_t loop_slot; /* slot of the variable `loop`; set only if uses_loop is true */
    /* a copy of the target (node a), with slots in the activation of the test */
    struct jinja_node *test_target;
    /* number of slots of the test's activation; the test is a function of its own */
    uint32_t n_test_slots;
} jinja_for;

typedef struct jinja_node {
    jinja_node_type type;
    int line;
    jinja_value constant;
    const jinja_string *name;
    jinja_slot slot;
    struct jinja_node *a, *b, *c;
    jinja_nodes items, body, otherwise;
    union {
        jinja_operator op;
        jinja_compare *compares; /* [items.n] */
        jinja_call *call;
        jinja_macro_node *macro;
        jinja_for *loop;
        /* for JINJA_NODE_SET_BLOCK, JINJA_NODE_FILTER_BLOCK and JINJA_NODE_WITH */
        jinja_scope *scope;
        /* for JINJA_NODE_NAME: true if the template assigns to the name here, false if it reads
         * it */
        bool stores;
    } as;
    union {
        const struct jinja_filter *filter; /* NULL: no filter with this name exists */
        const struct jinja_test *test;
    } function;
} jinja_node;

typedef struct jinja_tree {
    jinja_nodes body;
    jinja_scope scope;
    uint32_t n_slots;
    bool has_generation; /* there is a {% generation %} block */
} jinja_tree;
