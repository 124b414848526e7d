unicode.o: src/text/unicode.c src/text/unicode.h include/fsdp/base.h
src/text/unicode.h:
include/fsdp/base.h:
