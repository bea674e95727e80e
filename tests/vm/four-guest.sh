# SPDX-License-Identifier: MIT
# In a machine of four nodes, of which node 3 gets no processor: what vm/four.sh proves.  $form is
# set before this.
failed=0
run() {
	"$@" || {
		echo "four: $* ended with $?"
		failed=1
	}
}
n_allocs=400000
[ "$form" = long ] || n_allocs=20000
run vm_place $n_allocs
run vm_sets
echo 0 >/sys/devices/system/cpu/cpu6/online && echo 0 >/sys/devices/system/cpu/cpu7/online || failed=1
run vm_sets bare 3
exit $failed
