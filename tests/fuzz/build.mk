# SPDX-License-Identifier: MIT
# The fuzz targets: hoist's own sources, built once for all of them with clang's sanitizers.
#
#     make -f SOURCE/tests/fuzz/build.mk top_srcdir=SOURCE config=FOLDER-OF-config.h \
#         DEPENDENCY_LIBS='-luring -lnuma -lsodium'
#
# in the folder that is to hold what is built: make fuzz-targets does it.
CLANG ?= clang
# Asserts stay: a broken invariant is what is looked for.  -O1 is built in half the time of -O2, and
# inputs are tried as fast: most of the time is the sanitizers'.
CHECKS = -fsanitize=address,undefined -fno-sanitize-recover=undefined
FLAGS = -std=gnu11 -O1 -gline-tables-only -UNDEBUG $(CHECKS) -fno-omit-frame-pointer \
	-DHOIST_BINDIR='"/nowhere"' -DHOIST_PKGLIBDIR='"/nowhere"' -pthread
INCLUDES = -I$(top_srcdir)/tests/fuzz -I$(config) -I$(top_srcdir) -I$(top_srcdir)/include $(DEPENDENCY_FLAGS)
LIBS = $(DEPENDENCY_LIBS) -ldl -lm

folders = base net format numa device alloc io lib/*
not_library = %-abi.c
sources = $(filter-out $(not_library), \
	$(foreach folder,$(folders),$(patsubst $(top_srcdir)/%,%,$(wildcard $(top_srcdir)/$(folder)/*.c))))
objects = $(sources:.c=.o)
support = $(patsubst $(top_srcdir)/%.c,%.o,\
	$(wildcard $(top_srcdir)/tests/fuzz/fuzz-*.c $(top_srcdir)/tests/support/lib-plan*.c))
targets = $(filter-out fuzz-%,$(basename $(notdir $(wildcard $(top_srcdir)/tests/fuzz/*.c))))

all: $(targets)

$(objects): %.o: $(top_srcdir)/%.c
	@mkdir -p $(@D)
	$(CLANG) $(FLAGS) -fsanitize=fuzzer-no-link $(INCLUDES) -MMD -MP -c -o $@ $<

# The files that help the tests are not counted as covered code.
$(support): %.o: $(top_srcdir)/%.c
	@mkdir -p $(@D)
	$(CLANG) $(FLAGS) $(INCLUDES) -MMD -MP -c -o $@ $<

libfuzzed.a: $(objects) $(support)
	@rm -f $@
	ar rcs $@ $(objects) $(support)

$(targets): %: $(top_srcdir)/tests/fuzz/%.c libfuzzed.a
	$(CLANG) $(FLAGS) -fsanitize=fuzzer $(INCLUDES) -MMD -MP -MF $@.d -o $@ $< libfuzzed.a $(LIBS)

-include $(objects:.o=.d) $(support:.o=.d) $(targets:%=%.d)
.PHONY: all
