/* A table of aligned columns for the summary at the end of a run, by display width (UTF-8). */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_table_align {
    FSDP_TABLE_LEFT,
    FSDP_TABLE_RIGHT,
} fsdp_table_align;

typedef enum fsdp_table_style {
    FSDP_TABLE_AUTO,  /* boxes if the environment asks for UTF-8, otherwise ASCII */
    FSDP_TABLE_BOX,   /* Unicode's box drawing characters */
    FSDP_TABLE_ASCII, /* + - | */
} fsdp_table_style;

typedef struct fsdp_table fsdp_table;

FSDP_MUST_CHECK fsdp_status fsdp_table_create(size_t columns, fsdp_table **table);
void fsdp_table_destroy(fsdp_table *table); /* accepts NULL */

/* Sets heading and alignment of column `i`; the defaults are no heading and LEFT. */
void fsdp_table_column(fsdp_table *table, size_t i, const char *heading, fsdp_table_align align);

/* Begins a new row of empty cells, which are then filled from left to right. A failed allocation
 * and a row with too many cells are recorded and returned by fsdp_table_print(), so building a
 * table needs no checks. */
void fsdp_table_row(fsdp_table *table);
FSDP_PRINTF(2, 3) void fsdp_table_cell(fsdp_table *table, const char *format, ...);
/* Adds a rule between the rows before and after. */
void fsdp_table_rule(fsdp_table *table);

/* Line breaks and control characters within cells are printed as spaces. FSDP_ERR_IO if `file`
 * cannot be written. */
FSDP_MUST_CHECK fsdp_status fsdp_table_print(const fsdp_table *table, FILE *file,
                                             fsdp_table_style style);
