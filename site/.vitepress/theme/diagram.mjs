// A Mermaid diagram, drawn in the browser in the colours of the page. Without scripts, its source is shown.

import { useData } from 'vitepress';
import { defineComponent, h, onMounted, ref, useId, watch } from 'vue';

export default defineComponent({
  props: { code: { type: String, required: true } },
  setup(props) {
    const { isDark } = useData();
    const id = `diagram-${useId()}`;
    const svg = ref('');

    async function draw() {
      const { default: mermaid } = await import('mermaid');
      svg.value = (await mermaid.render(id, decodeURIComponent(props.code))).svg;
    }

    onMounted(draw);
    watch(isDark, draw);
    return () =>
      svg.value === ''
        ? h('pre', { class: 'diagram' }, decodeURIComponent(props.code))
        : h('div', { class: 'diagram', innerHTML: svg.value });
  },
});
