import { Portal } from './portal.js';

export default function Page() {
  return <Portal portal="http://127.0.0.1:4980" />;
}
