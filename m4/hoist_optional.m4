# SPDX-License-Identifier: MIT
# Things that hoist can do without.  Both macros are tri-state: found
# automatically; --with-NAME makes a missing one an error; --without-NAME does
# not look.

# HOIST_OPTIONAL_PKG(name, VARIABLE, pkg-config modules, what it is for)
# Sets VARIABLE_CFLAGS, VARIABLE_LIBS, the automake conditional HAVE_VARIABLE
# and the summary's word $hoist_with_NAME.
AC_DEFUN([HOIST_OPTIONAL_PKG], [
  AC_ARG_WITH([$1], AS_HELP_STRING([--with-$1], [use $1 for $4 (default: if found)]),
    [], [with_$1=auto])
  hoist_with_$1=no
  AS_IF([test "x$with_$1" != xno], [
    PKG_CHECK_MODULES([$2], [$3], [hoist_with_$1=yes], [
      AS_IF([test "x$with_$1" = xyes],
        [AC_MSG_ERROR([--with-$1 was given, but pkg-config does not find $3])])
      hoist_with_$1="no, not found"
    ])
  ])
  AM_CONDITIONAL([HAVE_$2], [test "x$hoist_with_$1" = xyes])
])

# HOIST_OPTIONAL_HEADER(name, header, extra include folder, what it is for, [condition])
# Also --with-NAME=FOLDER.  Sets NAME_CPPFLAGS (upper case), the automake
# conditional HAVE_NAME_H and the summary's word $hoist_with_NAME.  A header for
# which the preprocessor's condition is false, one too old, counts as not found.
AC_DEFUN([HOIST_OPTIONAL_HEADER],
  [HOIST_OPTIONAL_HEADER_AS([$1], m4_toupper([$1]), [$2], [$3], [$4], m4_default([$5], [1]),
    [$2[]m4_ifval([$5], [ with $5])])])
AC_DEFUN([HOIST_OPTIONAL_HEADER_AS], [
  AC_ARG_WITH([$1], AS_HELP_STRING([--with-$1@<:@=FOLDER@:>@], [use $3 for $5 (default: if found)]),
    [], [with_$1=auto])
  hoist_with_$1=no
  $2_CPPFLAGS=
  AS_IF([test "x$with_$1" != xno], [
    hoist_save_CPPFLAGS=$CPPFLAGS
    hoist_platform=
    AS_IF([test "$1" = hip], [hoist_platform=-D__HIP_PLATFORM_AMD__])
    # "-" stands for the compiler's own folders.
    AS_CASE([$with_$1], [yes|auto], [hoist_folders="- $4"],
      [hoist_folders="$with_$1 $with_$1/include"])
    for hoist_folder in $hoist_folders; do
      AS_IF([test "x$hoist_folder" = x-],
        [$2_CPPFLAGS=$hoist_platform],
        [$2_CPPFLAGS="-isystem $hoist_folder $hoist_platform"])
      CPPFLAGS="$hoist_save_CPPFLAGS $$2_CPPFLAGS"
      AS_IF([test "x$hoist_folder" = x-], [AC_MSG_CHECKING([for $7])],
        [AC_MSG_CHECKING([for $7 in $hoist_folder])])
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <$3>
#if !($6)
#error "too old"
#endif]], [])],
        [hoist_with_$1=yes], [])
      AC_MSG_RESULT([$hoist_with_$1])
      AS_IF([test "x$hoist_with_$1" = xyes], [break])
    done
    CPPFLAGS=$hoist_save_CPPFLAGS
    AS_IF([test "x$hoist_with_$1" = xno], [
      $2_CPPFLAGS=
      AS_IF([test "x$with_$1" != xauto],
        [AC_MSG_ERROR([--with-$1 was given, but $7 is not found])])
      hoist_with_$1="no, $7 not found"
    ])
  ])
  AC_SUBST([$2_CPPFLAGS])
  AM_CONDITIONAL([HAVE_$2_H], [test "x$hoist_with_$1" = xyes])
])
